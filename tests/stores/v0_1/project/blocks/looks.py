def has_moon(output, context):
    return {"passed": "Moon" in output, "score": 0.5, "reason": context["case_id"]}
