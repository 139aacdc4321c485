def get_assert(output, context):
    words = len(output.split())
    return {"passed": words >= context["config"]["least"], "score": 1.0, "reason": f"{words} words"}
