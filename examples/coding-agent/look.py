"""A grader: reads JSON from standard input, checks the workspace, prints a score."""

import json
import sys
from pathlib import Path

question = json.load(sys.stdin)
text = (Path(question["workspace_path"]) / "adding.py").read_text()
wanted = question["metadata"]
found = [{"text": f"contains {part!r}", "passed": part in text} for part in wanted["contains"]]
found += [{"text": f"lacks {part!r}", "passed": part not in text} for part in wanted["lacks"]]
print(json.dumps({"score": sum(one["passed"] for one in found) / len(found), "assertions": found}))
