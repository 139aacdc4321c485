import sys
import time
from pathlib import Path


def answer(text, *, context=None):
    if Path(__file__).with_name("slow").exists():
        time.sleep(0.4)
    return str(len(text))


if __name__ == "__main__":
    print(answer(sys.argv[1]))
