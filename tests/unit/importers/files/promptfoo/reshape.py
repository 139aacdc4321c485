import json


def shout(output, context):
    return output.upper()


def get_transform(output, context):
    value = json.loads(output)
    return {"first": value["name"], "town": context["vars"]["town"]}


def shout_text(output, context):
    return output["text"].upper()
