import json
import sys

for line in sys.stdin:
    question = json.loads(line)
    print(json.dumps({"id": question["id"], "output": question["prompt"].upper(), "cost_usd": 0.25, "input_tokens": 3}))
