def colour_is(output, context):
    return output["colour"] == context["config"]["colour"]


def get_assert(output, context):
    return {"pass": context["vars"]["colour"] in output, "score": 1, "reason": "its colour"}
