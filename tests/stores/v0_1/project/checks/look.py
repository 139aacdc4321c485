import json
import sys

question = json.load(sys.stdin)
share = (question.get("config") or {}).get("share", 1.0)
right = question["output"] == question["input"] or "what" in question["output"]
print(json.dumps({"score": share if right else 0.0, "assertions": [{"text": "the same", "passed": right}], "details": {"looked": True}}))
