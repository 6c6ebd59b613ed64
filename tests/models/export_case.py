"""Functions for the tests of the exporters.

They call export.py, make checkpoints with seeded weights, and check bounds.
"""

import contextlib
import copy
import functools
import io
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "models" / "export"), str(REPOSITORY / "tests" / "apps")]

import numpy
import torch
import yaml

import export
import photograph
import program
import programs
from package import load, quiet_threads

CALLS = ((1, 2), (2, 3))  # pictures and other rows of the calls that check methods
BOX_BOUND, MAX_BOUND, RMS_BOUND = 0.5, 1e-4, 1e-5


@contextlib.contextmanager
def shallow_sams():
    """While open, the exporter knows sam_shallow and sam2_shallow: shallow encoders of the classes of the larger families.

    Yields their constructors.
    """
    import sam_checkpoint
    from ultralytics.models.sam import build

    vit = functools.partial(build._build_sam, 64, 2, 4, [1])
    hiera = functools.partial(build._build_sam2, 24, (1, 1, 3, 1), 1, (3,), [192, 96, 48, 24], encoder_window_spec=(8, 4, 14, 7))
    families = {"sam_shallow": sam_checkpoint.Family("vit"), "sam2_shallow": sam_checkpoint.Family("hiera", **sam_checkpoint.SAM2)}
    with (
        mock.patch.multiple(build, create=True, vit=vit, hiera=hiera),
        mock.patch.dict(sam_checkpoint.FAMILIES, families),
        mock.patch.dict(sam_checkpoint.VIT, {64: "sam_shallow"}),
        mock.patch.dict(sam_checkpoint.HIERA, {(24, 6): "sam2_shallow"}),
    ):
        yield {"sam_shallow": vit, "sam2_shallow": hiera}


class Exported:
    """An ended export: its output, and its message if it was refused."""

    def __init__(self, out, refusal):
        self.out, self.refusal = out, refusal

    def __repr__(self):
        return f"{self.out}\n--- refused: {self.refusal}"


def declared(tensor, sizes):
    """(shape, type) of a method's tensor in model.yaml, with symbols replaced by `sizes`."""
    types = {"image": torch.float32, "f32": torch.float32, "i64": torch.int64}
    return [sizes.get(size, size) for size in tensor["shape"]], types[tensor["dtype"]]


class ExportCase(program.Case):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out.pkg"
        quiet_threads()

    def export(self, weights, *options, out=None):
        """Runs export.py with a command line, but in this process: importing torch and ultralytics takes seconds."""
        printed, errors = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
                export.main([str(weights), str(out or self.out), *map(str, options)])
        except SystemExit:
            return Exported(printed.getvalue(), errors.getvalue())
        return Exported(printed.getvalue(), None)

    def run_model(self, *words):
        """Runs the command `millrace model` in the folder of the test, as the program does."""
        command = [sys.executable, "-B", REPOSITORY / "models/export/model.py", "bin/millrace", REPOSITORY / "configs", *words]
        return subprocess.run([str(word) for word in command], cwd=self.folder, capture_output=True, text=True, check=False)

    def check_written(self, done, *printed, moves=True, others=(), calls=CALLS):
        self.assertIsNone(done.refusal, done)
        for part in (*printed, f"wrote {self.out}", "it computes what the original does"):
            self.assertIn(part, done.out)
        written = {f.name for f in self.out.iterdir()}
        self.assertEqual(written - {programs.NAME}, {"model.ts", "model.yaml", *others})
        self.assertEqual(programs.NAME in written, f"\n{programs.NAME}, " in done.out, done)
        if moves:
            self.check_moves(load(self.out))
        self.check_methods(self.out, calls)
        return yaml.safe_load((self.out / "model.yaml").read_text())

    def check_methods(self, folder, calls=CALLS):
        """Checks that the model has exactly the methods of model.yaml.

        Also checks that calls with (B, N) of `calls` give the declared outputs.
        """
        described, saved = yaml.safe_load((folder / "model.yaml").read_text()), load(folder).float()
        exported = programs.load(folder / programs.NAME) if (folder / programs.NAME).exists() else {}
        self.assertIn(set(exported), (set(), set(described["methods"])))
        self.assertEqual(set(described["methods"]), set(saved._c._method_names()))
        for name, method in described["methods"].items():
            taken = [argument.name for argument in saved._c._get_method(name).schema.arguments[1:]]
            self.assertEqual(len(taken), len(method["inputs"]), name)
            if name != "forward":  # the argument of forward may have any name
                self.assertEqual(taken, list(method["inputs"]), name)
            for pictures, rows in calls:
                sizes = {"B": pictures, "N": rows, "H": described["input"]["height"], "W": described["input"]["width"]}
                inputs = [declared(tensor, sizes) for tensor in method["inputs"].values()]
                with torch.inference_mode():
                    given = getattr(saved, name)(*(torch.zeros(shape, dtype=dtype) for shape, dtype in inputs))
                given = [given] if torch.is_tensor(given) else given
                outputs = [declared(tensor, sizes) for tensor in method["outputs"].values()]
                self.assertEqual([(list(tensor.shape), tensor.dtype) for tensor in given], outputs, (name, sizes))
                if name in exported:  # its number of rows is dynamic
                    with torch.no_grad():
                        own = exported[name].module()(*(torch.zeros(shape, dtype=dtype) for shape, dtype in inputs))
                    self.assertEqual([tensor.shape for tensor in ([own] if torch.is_tensor(own) else own)], [tensor.shape for tensor in given])

    def check_moves(self, saved):
        """Checks that the trace has no fixed device: Millrace would repair one, but programs in Python would not."""
        for method in ("forward", "encode", "decode", "embed"):
            if hasattr(saved, method):
                graph = getattr(saved, method).inlined_graph  # keeps the graph alive: its nodes die with it
                constants = graph.findAllNodes("prim::Constant")
                self.assertEqual([str(node) for node in constants if str(node.output().type()) == "Device"], [], method)

    def check_refused(self, weights, *says, options=(), out=None):
        """Checks that the export refuses the weights, and that its message, which is returned, contains each of `says`."""
        done = self.export(weights, *options, out=out)
        self.assertIsNotNone(done.refusal, done)
        for part in (str(weights), *says):
            self.assertIn(part, done.refusal)
        self.assertEqual(len(done.refusal.splitlines()), 1, done)
        self.assertFalse(list(self.folder.glob("*.part")))
        if out is None:
            self.assertFalse(self.out.exists())
        return done.refusal

    def hold_logits(self, saved, original):
        difference = (saved.double() - original.double()).abs()
        deviation = original.double().std()
        self.assertLessEqual((difference.max() / deviation).item(), MAX_BOUND)
        self.assertLessEqual((difference.pow(2).mean().sqrt() / deviation).item(), RMS_BOUND)

    def hold_boxes(self, saved, original, scale):
        """Checks boxes given as centre, width and height in input pixels. The bound is in pixels of the picture."""
        half = [torch.cat([box[:, :2] - box[:, 2:] / 2, box[:, :2] + box[:, 2:] / 2], dim=1) for box in (saved.double(), original.double())]
        self.assertLessEqual((half[0] - half[1]).abs().max().item() / scale, BOX_BOUND)


def picture():
    """(options, pixels) of the street photograph; without test data, of the picture that exporters draw."""
    try:
        file = program.picture("street.jpg")
    except unittest.SkipTest:
        return (), photograph.drawn()
    with contextlib.redirect_stdout(io.StringIO()):
        return ("--photograph", file), photograph.read(file)


def save_ultralytics(path, model, **more):
    """Saves a checkpoint as Ultralytics releases it: the whole model in half precision, in a dict."""
    model = copy.deepcopy(model).half()
    around = {"epoch": -1, "best_fitness": numpy.float64(0.37), "ema": None, "train_args": {"imgsz": 640}, "version": "8"}
    torch.save({**around, "model": model, **more}, path)
    return path


def seeded_yolo(config, seed=0, pixels=640, classes=80):
    """A model of Ultralytics with seeded weights, rounded to half precision as in a checkpoint."""
    import yolov8_seeded
    from ultralytics.nn import tasks

    kinds = {"seg": tasks.SegmentationModel, "pose": tasks.PoseModel}
    kind = kinds.get(config.rpartition("-")[2], tasks.DetectionModel)
    return yolov8_seeded.seeded(seed, f"{config}.yaml", pixels, kind, classes).half().float().eval()


def seeded_detr(config, pixels, classes):
    """An RT-DETR with seeded weights. In a new one, boxes are the anchors and all scores are almost equal."""
    import yolov8_seeded
    from ultralytics.nn import tasks

    torch.manual_seed(0)
    model = tasks.RTDETRDetectionModel(f"{config}.yaml", nc=classes, verbose=False).eval()
    head = model.model[-1]
    with torch.no_grad():
        norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
        for norm in norms:
            norm.momentum = 1.0  # take over the statistics of these pictures
            norm.train()
        model(yolov8_seeded.soft_noise(4, pixels))
        for norm in norms:
            norm.eval()
        for layer in (head.enc_score_head, *head.dec_score_head):
            layer.weight.normal_(0, 0.1)
            layer.bias.fill_(-2.0)
        for layers in (head.enc_bbox_head, *head.dec_bbox_head):
            layers.layers[-1].weight.normal_(0, 0.02)
    return model.half().float().eval()


def plain_yolo(config, classes=3):
    """A newly constructed model of Ultralytics, for tests of its kind only."""
    from ultralytics.nn import tasks

    kinds = {"seg": tasks.SegmentationModel, "pose": tasks.PoseModel, "obb": tasks.OBBModel, "cls": tasks.ClassificationModel,
             "rtdetr": tasks.RTDETRDetectionModel, "sem": tasks.SemanticSegmentationModel, "world": tasks.WorldModel}
    torch.manual_seed(0)
    return kinds.get(config.rpartition("-")[2], tasks.DetectionModel)(f"{config}.yaml", nc=classes, verbose=False).eval()


def perturbed(sam):
    """Random values for the weights that are zeros or ones in a new SAM. Then a test can see whether they are used."""
    import mobile_sam_seeded

    with torch.no_grad():
        for name, parameter in sam.named_parameters():
            if any(part in name for part in ("attention_biases", "rel_pos", "pos_embed", "no_mem_embed")):
                parameter.normal_(0, 0.1)
        for part in ("prompt_encoder", "mask_decoder", "sam_prompt_encoder", "sam_mask_decoder"):
            if hasattr(sam, part):
                mobile_sam_seeded.perturb(getattr(sam, part))
    return sam.eval()


def seeded_sam(family):
    """A segmenter of the original architecture with seeded weights."""
    import mobile_sam_seeded
    from ultralytics.models.sam.build import build_sam_vit_b

    if family == "mobile_sam":
        sam = mobile_sam_seeded.seeded(0)
        with torch.no_grad():  # they are zeros in a new model; then a test could not see whether attention uses them
            for name, parameter in sam.image_encoder.named_parameters():
                if name.endswith("attention_biases"):
                    parameter.normal_(0, 0.5)
        return sam.eval()
    torch.manual_seed(0)
    sam = build_sam_vit_b()
    with torch.no_grad():
        for name, parameter in sam.image_encoder.named_parameters():
            if "rel_pos" in name or "pos_embed" in name:
                parameter.normal_(0, 0.1)
        mobile_sam_seeded.perturb(sam.prompt_encoder)
        mobile_sam_seeded.perturb(sam.mask_decoder)
    return sam.eval()
