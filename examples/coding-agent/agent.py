"""In place of an agent: works on the files of the current folder."""

import sys
from pathlib import Path

FILE = Path("adding.py")


def main(prompt: str) -> str:
    """Do the task and report it."""
    text = FILE.read_text()
    if prompt.startswith("rename "):
        old, _, new = prompt.removeprefix("rename ").partition(" to ")
        FILE.write_text(text.replace(old, new))
    elif prompt == "sign the file":
        FILE.write_text(f"{text}\n# written by the agent\n")
    else:
        return f"I cannot: {prompt}"
    return f"Done: {prompt}"


print(main(sys.argv[1]))
