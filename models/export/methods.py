"""Makes the section `methods` of model.yaml: inputs and outputs of a package's methods (docs/packages.md).

Each task has a function.
In shapes, B is the number of pictures in a call, and N the number of its rows that are not pictures.
H and W are the sides of the input.
The dtype `image` is f32, f16 or bf16: the precision of a run decides.
"""


def tensor(*shape, dtype="f32"):
    return {"shape": list(shape), "dtype": dtype}


def method(row, maximum, inputs, outputs):
    """`row` is the kind of the model's rows, `maximum` their maximum number in a call."""
    return {"row": row, "maximum": maximum, "inputs": inputs, "outputs": outputs}


def images():
    return tensor("B", 3, "H", "W", dtype="image")


def detect(package):
    boxes = package["output"]["boxes"]
    shape = {"v8": (4 + len(package["classes"]), boxes), "end_to_end": (boxes, 6)}[package["output"]["layout"]]
    return {"forward": method("picture", package["max_batch"], {"images": images()}, {"detections": tensor("B", *shape)})}


def segment(package):
    def embedding():
        return {"embedding": tensor("B", *package["output"]["embedding"], dtype="image")}

    prompts = {"boxes": tensor("N", 4), "image_index": tensor("N", dtype="i64")}
    masks = {"logits": tensor("N", *package["output"]["logits"]), "iou": tensor("N")}
    return {
        "encode": method("picture", package["max_batch"], {"images": images()}, embedding()),
        "decode": method("box", package["max_boxes"], {**embedding(), **prompts}, masks),
    }


def embed(package):
    return {"embed": method("crop", package["max_batch"], {"images": images()}, {"embedding": tensor("B", package["output"]["dimensions"])})}


def classify(package):
    return {"classify": method("picture", package["max_batch"], {"images": images()}, {"logits": tensor("B", len(package["classes"]))})}


def regress(package):
    return {"regress": method("picture", package["max_batch"], {"images": images()}, {"values": tensor("B", package["output"]["values"])})}


def semantic(package):
    axes = {"xyz": "WHD", "zyx": "DHW"}.get(package["input"].get("axes"), "HW")
    channels = package["input"].get("channels", 1 if "depth" in package["input"] else 3)
    channels = len(channels) if isinstance(channels, list) else channels  # a list has the scaling of each channel
    inputs = {"images": tensor("B", channels, *axes, dtype="image")}
    return {"forward": method("window", package["max_batch"], inputs, {"logits": tensor("B", package["output"]["channels"], *axes)})}


TASKS = {"detect": detect, "segment": segment, "embed": embed, "classify": classify, "regress": regress, "semantic": semantic}
