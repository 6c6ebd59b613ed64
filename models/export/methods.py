"""The section `methods` of model.yaml, one function a task: what a package's methods take and give (docs/packages.md).

In shapes B counts the pictures of a call and N its rows that are no pictures; H and W are the sides of the input. The dtype
`image` is f32, f16 or bf16, by the precision of a run.
"""


def tensor(*shape, dtype="f32"):
    return {"shape": list(shape), "dtype": dtype}


def method(row, maximum, inputs, outputs):
    """`row` says what the model's rows are, `maximum` how many of them a call takes."""
    return {"row": row, "maximum": maximum, "inputs": inputs, "outputs": outputs}


def images():
    return tensor("B", 3, "H", "W", dtype="image")


def detect(package):
    width, height, strides = package["input"]["width"], package["input"]["height"], package["output"]["strides"]
    anchors = sum((width // stride) * (height // stride) for stride in strides)
    classes = len(package["classes"])
    shape = {"v8": (4 + classes, anchors), "yolox_raw": (anchors, 5 + classes)}[package["output"]["layout"]]
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


TASKS = {"detect": detect, "segment": segment, "embed": embed}
