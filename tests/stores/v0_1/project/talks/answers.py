from evalcore import Evidence, Metrics


def fails(text):
    raise LookupError(f"no answer to {text}")


def measured(text):
    metrics = Metrics(cost_usd=0.5, input_tokens=2, output_tokens=1)
    return Evidence(output=text, metrics=metrics, details={"tool_calls": [{"tool": "look", "input": {"at": "it"}}]})
