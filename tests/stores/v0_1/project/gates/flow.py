NAMES = {1: "one", 2: "two", 3: "three"}


def answer(case_input, variant):
    text = NAMES[case_input["n"]]
    if variant.config.get("worse") and case_input["n"] == 2:
        text = "zwei"
    if variant.config.get("worse") and case_input["n"] == 1:
        raise LookupError("the worse one does not know it")
    metrics = {"latency_ms": 20 * case_input["n"], "cost_usd": 0.002, "input_tokens": 3, "output_tokens": 2}
    return {"outputs": {"number": case_input["n"], "text": text}, "metrics": metrics}


def is_even(artifact):
    return 1.0


def length(artifact):
    return {"value": 0.5, "raw_value": {"characters": len(artifact.outputs["text"])}}


def polite(report):
    return True, f"polite: {report['suite']}"
