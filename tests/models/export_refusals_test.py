"""Files that exporters refuse. The message says what the file looks like, and no pickle runs without --trust."""

import io
import os
import pathlib
import pickle
import subprocess
import sys
import unittest
import zipfile

import numpy
import torch
from export_case import REPOSITORY, ExportCase, plain_yolo, save_ultralytics

import checkpoint
import program
import yolo_onnx
from torchvision import models
from ultralytics.models.sam.build import build_mobile_sam

SUPPORTED = "the exporters support detectors of Ultralytics from YOLOv3 to YOLO26 and RT-DETR"


class Command:
    """Its pickle calls os.system."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch '{self.marker}'",)


class Construction:
    """Its pickle calls the constructor of DetectionModel, which evaluates the activation's text as Python."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        from ultralytics.nn.tasks import DetectionModel

        command = f"__import__('pathlib').Path({str(self.marker)!r}).touch()"
        backbone = [[-1, 1, "Conv", [16, 3, 2]]]
        return DetectionModel, ({"activation": command, "nc": 1, "depth_multiple": 1.0, "width_multiple": 1.0, "backbone": backbone, "head": []},)


class OwnActivation(torch.nn.Module):
    """A layer that Ultralytics does not have."""

    def forward(self, x):
        return x.relu()


class Files(ExportCase):
    def write(self, name, data):
        (self.folder / name).write_bytes(data)
        return self.folder / name

    def test_files_that_are_not_checkpoints(self):
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("notes.txt", "x")
        scripted = self.folder / "scripted.pt"
        torch.jit.trace(torch.nn.Linear(1, 1), torch.zeros(1, 1)).save(str(scripted))
        self.check_refused(scripted, "is a TorchScript model", "original checkpoint")
        header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        for name, data, says in (
            ("empty.pt", b"", ("is empty", "fetch it again")),
            ("page.pt", b"\n<!DOCTYPE html><html>login</html>", ("is a web page", "fetch the model again")),
            ("pointer.pt", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", ("is a Git LFS pointer", "git lfs pull")),
            ("notes.zip", archive.getvalue(), ("is a zip archive without a model in it", "unpack it")),
            ("cut.pt", scripted.read_bytes()[:600], ("is a zip archive that is cut off", "fetch it again")),
            ("x.safetensors", len(header).to_bytes(8, "little") + header + bytes(4), ("is safetensors weights", ".pt or .pth")),
            ("x.gguf", b"GGUF" + bytes(60), ("is GGUF weights",)),
            ("x.h5", b"\x89HDF\r\n\x1a\n" + bytes(60), ("is an HDF5 file",)),
            ("x.tflite", b"\x1c\x00\x00\x00TFL3" + bytes(60), ("is a TensorFlow Lite model",)),
            ("x.engine", b"ftrt" + bytes(60), ("is a TensorRT engine",)),
            ("x.jpg", b"\xff\xd8\xff\xe0" + bytes(60), ("is a picture", "name the file with the weights")),
            ("png.pt", b"\x89PNG\r\n\x1a\n" + bytes(60), ("is a picture",)),
            ("notes.pt", b"To do: train" + bytes(60), ("is of an unknown kind", SUPPORTED)),
            ("x.onnx", b"\x08\x06\x12\x07pytorch" + b"\xff" * 60, ("looks like an ONNX model but cannot be read",)),
            ("bare.pt", pickle.dumps({"a": 1}, protocol=2), ("is a pickle that PyTorch cannot load",)),
        ):
            with self.subTest(name):
                self.check_refused(self.write(name, data), *says)

    def test_the_message_comes_after_what_was_printed(self):
        code = "import command_line; print('measures'); command_line.end(5, 'refused')"
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # it would hide the order
        done = subprocess.run(
            [sys.executable, "-B", "-c", code],
            cwd=REPOSITORY / "models/export", env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        self.assertEqual((done.stdout, done.returncode), ("measures\nexport: refused\n", 5))

    def test_paths(self):
        self.check_refused(self.folder / "nowhere.pt", "no such file", "download nothing")
        self.check_refused(self.folder, "is a folder")
        package = self.folder / "done.pkg"
        package.mkdir()
        (package / "model.yaml").write_text("schema: 1\n")
        self.check_refused(package, "is a model package already", "--detector or --segmenter")

    def test_files_and_folders_that_are_not_packages_are_not_replaced(self):
        weights = save_ultralytics(self.folder / "model.pt", plain_yolo("yolov8n"))
        folder = self.folder / "mine"
        folder.mkdir()
        (folder / "model.yaml").write_text("a: 1\n")
        (folder / "thesis.tex").write_text("years\n")
        file = self.write("file", b"years")
        for out, says in ((folder, "is a folder with thesis.tex in it, not a model package"), (file, "is a file, not a model package")):
            done = self.export(weights, "--imgsz", 64, out=out)
            self.assertIn(says, str(done.refusal))
        self.assertEqual((folder / "thesis.tex").read_text(), "years\n")
        self.assertEqual(file.read_bytes(), b"years")


def ultralytics(path, edit=None):
    """A checkpoint of Ultralytics; `edit` changes its model."""
    model = plain_yolo("yolov8n")
    if edit:
        edit(model)
    torch.save({"model": model}, path)


def state_of(original):
    def write(path, edit=None, **options):
        state = original()
        if edit:
            edit(state)
        torch.save(state, path, **options)

    return write


def onnx(path, edit=None):
    """YOLOX-nano; `edit` changes the graph."""
    file = program.DATA / "models" / "yolox_nano.onnx"
    if not file.is_file():
        raise unittest.SkipTest(f"{file} is missing")
    data = file.read_bytes()
    if edit:
        model = yolo_onnx.onnx.load_from_string(data)
        edit(model.graph)
        data = model.SerializeToString()
    path.write_bytes(data)


sam = state_of(lambda: build_mobile_sam().state_dict())
torchvision = state_of(lambda: models.resnet18(num_classes=3).state_dict())


def without_data(*shape):
    """A tensor of any shape with one number in the file."""
    return torch.zeros(1).half().expand(shape)


def weight(value):
    def edit(model):
        model.model[0].conv.weight = torch.nn.Parameter(value)

    return edit


def update(**tensors):
    return lambda state: state.update({name.replace("__", "."): tensor for name, tensor in tensors.items()})


def keep_elsewhere(tensor, location):
    tensor.ClearField("raw_data")
    tensor.data_location = yolo_onnx.onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)


def elsewhere(location):
    return lambda graph: keep_elsewhere(graph.initializer[0], location)


def elsewhere_in_a_node(graph):
    constant = yolo_onnx.numpy_helper.from_array(numpy.zeros(1, numpy.float32), "offset")
    keep_elsewhere(constant, "../secret")
    helper = yolo_onnx.onnx.helper
    graph.node.extend([helper.make_node("Constant", [], ["offset"], value=constant), helper.make_node("Add", ["output", "offset"], ["moved"])])
    graph.output[0].name = "moved"


def shape_of_weights(*sizes):
    def edit(graph):
        graph.initializer[0].ClearField("dims")
        graph.initializer[0].dims.extend(sizes)

    return edit


def shape_of_input(*sizes):
    def edit(graph):
        for dimension, size in zip(graph.input[0].type.tensor_type.shape.dim, sizes):
            dimension.dim_value = size

    return edit


def large_output(graph):
    graph.initializer.append(yolo_onnx.numpy_helper.from_array(numpy.array([2**30, 3549, 85]), "sizes"))
    graph.node.append(yolo_onnx.onnx.helper.make_node("Expand", ["output", "sizes"], ["repeated"]))
    graph.output[0].name = "repeated"


HUGE = 2**44
NO_NUMBERS = "has tensors that are not a plain list of all their numbers (1: "
NOT_FINITE = "has weights that are NaN or infinite (1: "
ONE_FILE = ("keeps weights in other files, which the exporter does not open", "external_data=False")
# For each exporter: a function that writes its original, then a hostile edit of it and what the message says.
HOSTILE = {
    ultralytics: (
        (weight(without_data(16, 3, 2**20, 2**20)), (NO_NUMBERS + "model.0.conv.weight)",)),
        (weight(torch.full((16, 3, 3, 3), torch.nan)), (NOT_FINITE + "model.0.conv.weight)", "take another checkpoint")),
    ),
    sam: (
        (update(extra=without_data(HUGE)), (NO_NUMBERS + "extra)", "fetch it from its maker")),
        (update(image_encoder__neck__1__bias=torch.zeros(256).to_sparse()), (NO_NUMBERS + "image_encoder.neck.1.bias)",)),
        (update(image_encoder__neck__1__bias=torch.empty(256, device="meta")), (NO_NUMBERS + "image_encoder.neck.1.bias)",)),
        (update(image_encoder__neck__1__bias=torch.full((256,), torch.inf)), (NOT_FINITE + "image_encoder.neck.1.bias)",)),
        (update(image_encoder__trunk__patch_embed__proj__weight=torch.tensor(0.0)), ("looks like a SAM 2 with an image encoder of width 1 and 0 blocks",)),
        (lambda s: (s.clear(), s.update({"image_encoder.pos_embed": torch.tensor(0.0), "mask_decoder.iou_token.weight": torch.tensor(0.0)})),
         ("looks like a SAM with an image encoder of width 1;",)),
    ),
    torchvision: (
        (update(fc__weight=without_data(HUGE, 512)), (NO_NUMBERS + "fc.weight)",)),
        (update(fc__weight=torch.zeros(HUGE, 0)), ("has tensors of other shapes", "fc.weight")),
        (update(fc__weight=torch.zeros(0, 512), fc__bias=torch.zeros(0)), ("has tensors of other shapes", "fc.weight")),
        (update(fc__bias=torch.full((3,), torch.nan)), (NOT_FINITE + "fc.bias)",)),
    ),
    onnx: (
        (elsewhere("../secret"), ONE_FILE),
        (elsewhere("/etc/passwd"), ONE_FILE),
        (elsewhere("missing"), ONE_FILE),
        (elsewhere_in_a_node, ONE_FILE),
        (shape_of_weights(HUGE, HUGE), ("cannot be read as one", "fetch it again")),
        (shape_of_weights(2**33), ("cannot be read as one", "fetch it again")),
        (shape_of_weights(-1, 3), ("cannot be read as one", "fetch it again")),
        (shape_of_input(1, 3, HUGE, HUGE), ("sides of a YOLO are multiples of 32, from 32 to 8192",)),
        (shape_of_input(HUGE, 3, 416, 416), (f"it takes {HUGE} pictures in every call",)),
        (large_output, ("ONNX Runtime cannot run it", "export the package from the original checkpoint")),
    ),
}  # fmt: skip


class EveryExporter(ExportCase):
    """Truncated and hostile files of each exporter. The other classes have files of the wrong kind."""

    def test_truncated_files(self):
        cut = ("is a zip archive that is cut off", "fetch it again")
        old = {"_use_new_zipfile_serialization": False}
        for write, options, says in (
            (ultralytics, {}, cut),
            (sam, {}, cut),
            (sam, old, ("PyTorch cannot load", "fetch it again")),
            (torchvision, {}, cut),
            (torchvision, old, ("PyTorch cannot load", "fetch it again")),
            (onnx, {}, ("cannot be read as one", "fetch it again")),
        ):
            whole = self.folder / "whole"
            write(whole, **options)
            data = whole.read_bytes()
            for share in (0.01, 0.5, 0.999):
                with self.subTest(says=says, share=share):
                    (self.folder / "cut").write_bytes(data[: int(share * len(data))])
                    self.check_refused(self.folder / "cut", *says)

    def test_hostile_files(self):
        for write, cases in HOSTILE.items():
            for number, (edit, says) in enumerate(cases):
                with self.subTest(says=says, number=number):
                    write(self.folder / "hostile", edit)
                    self.check_refused(self.folder / "hostile", *says)


class OtherModels(ExportCase):
    def test_models_of_ultralytics(self):
        for config, says in (
            ("yolov8n-obb", "is a model of rotated boxes"),
            ("yolo26n-obb", "is a model of rotated boxes"),
            ("yolov8n-cls", "is a classifier"),
            ("yolo26n-sem", "is a model of semantic segmentation"),
            ("yolov8s-world", "is a model that searches for texts"),
        ):
            with self.subTest(config):
                path = save_ultralytics(self.folder / "model.pt", plain_yolo(config))
                self.check_refused(path, says, SUPPORTED)
                self.check_refused(path, says, options=["--trust"])

    def test_names_that_are_missing(self):
        model = plain_yolo("yolov8n")
        model.names = {0: "bolt", 1: "nut"}
        self.check_refused(save_ultralytics(self.folder / "model.pt", model), "has 3 classes, but its list of names", options=["--imgsz", 64])

    def test_other_segmenters_and_weights(self):
        one = torch.zeros(1)
        for state, says in (
            ({"model": {"image_encoder.trunk.patch_embed.proj.weight": torch.zeros(100, 3, 7, 7)}}, "looks like a SAM 2 with an image encoder of width 100 and 0 blocks;"),
            ({"state_dict": {"module.image_encoder.trunk.patch_embed.proj.weight": torch.zeros(96, 3, 7, 7), "module.image_encoder.trunk.blocks.0.x": one}},
             "looks like a SAM 2 with an image encoder of width 96 and 1 blocks;"),
            ({"model": {"image_encoder.trunk.patch_embed.proj.weight": torch.zeros(96, 3, 7, 7), **{f"image_encoder.trunk.blocks.{i}.x": one for i in range(12)}}},
             "looks like sam2_hiera_tiny but"),
            ({"detector.backbone.x": one, "tracker.y": one}, "looks like SAM 3;"),
            ({"mask_decoder.hf_token.weight": one, "image_encoder.patch_embed.seq.0.c.weight": one}, "looks like HQ-SAM;"),
            ({"model": {"mask_decoder.final_output_upscaling_layers.0.0.weight": one}}, "looks like EfficientSAM;"),
            ({"image_encoder.pos_embed": torch.zeros(1, 64, 64, 1000), "mask_decoder.iou_token.weight": one}, "looks like a SAM with an image encoder of width 1000;"),
            ({"start_epoch": 3, "model": {"backbone.backbone.stem.conv.conv.weight": one}}, "looks like YOLOX as a checkpoint"),
            ({"model.0.conv.weight": one}, "without the model itself"),
            ({"conv1.weight": one, "fc.bias": one}, "holds 2 tensors of an unknown model (conv1.weight, fc.bias, ...)"),
            ({"epoch": 3, "loss": 0.5}, "holds a dict with epoch, loss, and no supported model"),
            ([one], "holds an object of type list"),
        ):
            with self.subTest(says):
                torch.save(state, self.folder / "x.pt")
                self.check_refused(self.folder / "x.pt", says, *([] if says.endswith(" but") else [SUPPORTED]))


class Pickles(ExportCase):
    def setUp(self):
        super().setUp()
        self.marker = self.folder / "marker"

    def check_not_run(self, *says):
        self.check_refused(self.folder / "x.pt", "can run any command with your rights", "was not loaded", "--trust", *says)
        self.assertFalse(self.marker.exists())

    def test_a_command(self):
        for options in ({}, {"_use_new_zipfile_serialization": False}):
            with self.subTest(options):
                torch.save({"model": Command(self.marker)}, self.folder / "x.pt", **options)
                self.check_not_run("system")
        for protocol, says in ((2, "is a pickle that holds posix.system"), (4, "PyTorch cannot load as a checkpoint (UnpicklingError")):
            (self.folder / "x.pt").write_bytes(pickle.dumps(Command(self.marker), protocol=protocol))
            refused = self.check_refused(self.folder / "x.pt", says)
            self.assertNotIn("weights_only", refused)  # PyTorch's message advises to load the file with it set to False
        self.assertFalse(self.marker.exists())

    def test_a_command_next_to_a_model(self):
        save_ultralytics(self.folder / "x.pt", plain_yolo("yolov8n"), updates=Command(self.marker))
        self.check_not_run("holds posix.system")

    def test_a_constructor_that_evaluates_text(self):
        torch.save({"model": Construction(self.marker)}, self.folder / "x.pt")
        self.check_not_run("constructs a DetectionModel")

    def test_trust(self):
        torch.save({"model": Command(self.marker), "weight": torch.zeros(1)}, self.folder / "x.pt")
        self.check_refused(self.folder / "x.pt", "holds a dict with model, weight", options=["--trust"])
        self.assertTrue(self.marker.exists())  # the command did run, so the tests above would notice it

    def test_a_layer_of_your_own_needs_trust(self):
        model = plain_yolo("yolov8n")
        model.model[0].act = OwnActivation()
        path = save_ultralytics(self.folder / "x.pt", model)
        self.check_refused(path, "OwnActivation", "can run any command with your rights", "--trust", SUPPORTED)
        self.check_written(self.export(path, "--trust", "--imgsz", 64))

    def test_names_that_only_look_like_layers(self):
        """Functions and other objects of the modules of layers are not created either."""
        for name in ("ultralytics.nn.tasks.torch_safe_load", "ultralytics.nn.modules.block.torch", "torch.nn.modules.utils._pair",
                     "ultralytics.nn.modules.os.system", "torch.nn.modules.module.Module.eval", "ultralytics.nn.autobackend.AutoBackend"):
            self.assertIsNone(checkpoint.layer_of(name), name)
        for name in ("ultralytics.nn.modules.head.v10Detect", "ultralytics.nn.modules.Conv", "torch.nn.modules.activation.SiLU",
                     "ultralytics.nn.tasks.YOLOv10DetectionModel"):
            self.assertTrue(issubclass(checkpoint.layer_of(name), torch.nn.Module), name)

    def test_more_queries_than_boxes(self):
        model = plain_yolo("yolov8-rtdetr")
        model.model[-1].num_queries = 10**9
        described = self.check_written(self.export(save_ultralytics(self.folder / "x.pt", model), "--imgsz", 64), moves=False)
        self.assertEqual(described["output"]["boxes"], 252)  # 84 anchors, three classes

    def test_a_damaged_or_hostile_model_of_every_kind_of_head(self):
        """Values that a pickle can set in a head: a wrong number of classes, layers, anchors, or none."""
        for config, edits in (
            ("yolov8n", {"nc": 5, "reg_max": 7, "stride": torch.zeros(3), "cv3": torch.nn.ModuleList(), "cv2": None}),
            ("yolo26n", {"nc": 5, "max_det": -1, "one2one_cv2": torch.nn.ModuleList(), "one2one_cv3": None}),
            ("yolov8-rtdetr", {"nc": 5, "num_queries": 0, "dec_score_head": None, "decoder": torch.nn.Identity()}),
        ):
            for name, value in edits.items():
                with self.subTest(config=config, name=name):
                    model = plain_yolo(config)
                    head = model.model[-1]
                    (head._modules if name in head._modules else head.__dict__)[name] = value
                    done = self.export(save_ultralytics(self.folder / "x.pt", model), "--imgsz", 64)
                    self.assertIsNotNone(done.refusal, done)
                    self.assertEqual(len(done.refusal.splitlines()), 1, done)
                    self.assertFalse(self.out.exists())

    def test_objects_outside_the_model_are_not_constructed(self):
        """Loading with weights_only does not construct the other objects in a checkpoint."""
        save_ultralytics(self.folder / "x.pt", plain_yolo("yolov8n"), save_dir=pathlib.PosixPath("/runs"), device=torch.device("cpu"))
        self.assertIs(type(checkpoint.load(self.folder / "x.pt")["save_dir"]), checkpoint.LeftOver)
        self.check_written(self.export(self.folder / "x.pt", "--imgsz", 64))

    def test_a_model_that_does_not_run_is_refused(self):
        model = plain_yolo("yolov8n")
        model.model[3].conv = torch.nn.Conv2d(7, 32, 3, 2, 1)
        save_ultralytics(self.folder / "x.pt", model)
        self.check_refused(self.folder / "x.pt", "cannot be run or traced (RuntimeError", "nothing was written")

    def test_pictures_of_other_channels(self):
        model = plain_yolo("yolov8n")
        model.model[0].conv = torch.nn.Conv2d(4, 16, 3, 2, 1)
        save_ultralytics(self.folder / "x.pt", model)
        self.check_refused(self.folder / "x.pt", "takes pictures of 4 channels")

    def test_weights_next_to_another_model_yaml_are_not_a_package(self):
        save_ultralytics(self.folder / "model.pt", plain_yolo("yolov8n"))
        (self.folder / "model.yaml").write_text("nc: 80\n")
        done = self.export(self.folder / "model.pt", out=self.folder)
        self.assertIn("not a model package, so it was not replaced", done.refusal)
        self.assertTrue((self.folder / "model.pt").is_file())


if __name__ == "__main__":
    program.main(needs_program=False)
