"""Exporters on seeded weights of the real architectures: packages agree with the original, at any batch size."""

import contextlib
import io
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from unittest import mock

import export_case
import numpy
import torch
import yaml
from export_case import ExportCase, picture, plain_yolo, save_ultralytics, seeded_detr, seeded_sam, seeded_yolo

import detections
import package
import photograph
import program
import programs
import yolo_onnx
import yolov8_seeded
from ultralytics_yolo import original_output


# One model of each family of Ultralytics, and of each kind of head: its layout, and its boxes at 128 pixels.
FAMILIES = {
    "yolov3-tiny": ("v8", 80),
    "yolov5n": ("v8", 336),
    "yolov5n-p6": ("v8", 340),
    "yolov8n": ("v8", 336),
    "yolov8n-p2": ("v8", 1360),
    "yolov8n-seg": ("v8", 336),
    "yolov9t": ("v8", 336),
    "yolov10n": ("end_to_end", 300),
    "yolo11n": ("v8", 336),
    "yolo11n-pose": ("v8", 336),
    "yolo12n": ("v8", 336),
    "yolo26n": ("end_to_end", 300),
    "yolo26n-seg": ("end_to_end", 300),
    "yolo26n-pose": ("end_to_end", 300),
    "yolov8-rtdetr": ("end_to_end", 300),
    "rtdetr-l": ("end_to_end", 300),
}


class UltralyticsDetectors(ExportCase):
    def test_every_family(self):
        options, _ = picture()
        for config, (layout, boxes) in FAMILIES.items():
            with self.subTest(config):
                original = seeded_detr(config, 128, 5) if "detr" in config else seeded_yolo(config, 0, 128, 5)
                weights = save_ultralytics(self.folder / f"{config}.pt", original)
                done = self.export(weights, "--imgsz", 128, *options)
                # RT-DETR calls torch.arange with a fixed device. Millrace changes it when it loads the package.
                described = self.check_written(done, "the picture alone: boxes differ", "in a batch of 3: logits", moves="detr" not in config)
                self.assertEqual(described["output"], {"layout": layout, "boxes": boxes})
                self.assertEqual(described["input"]["resize"], "stretch" if "detr" in config else "letterbox")
                self.assertIn(programs.NAME, described["files"], done)
                kind = type(original).__name__
                self.assertEqual(described["original"], f"Ultralytics {version('ultralytics')} {kind} {config}")
                self.check_boxes(config, original, layout)
                shutil.rmtree(self.out)

    def check_boxes(self, config, original, layout):
        """Compares the package with Ultralytics' whole prediction: its own preprocessing and choice of boxes."""
        from ultralytics.utils import ops
        from ultralytics.utils.nms import non_max_suppression

        pictures = yolov8_seeded.soft_noise(3, 128)
        saved = package.load(self.out)
        with torch.inference_mode():
            found = saved(pictures)
            head = original.model[-1]
            if "detr" not in config:
                head.end2end = layout == "end_to_end"
            expected = original_output(original, pictures)
        for own, other in zip(found, expected):
            if layout == "v8":
                other = non_max_suppression(other[None], 0.002, 0.6, nc=5)[0]
                own = non_max_suppression(own[None], 0.002, 0.6, nc=5)[0]
            elif "detr" in config:
                other = torch.cat([ops.xywh2xyxy(other[:, :4]) * 128, other[:, 4:6]], 1)
            self.assertGreater(len(other), 5)
            self.assertEqual(own.shape, other[:, :6].shape)
            self.assertLessEqual((own[:, :4] - other[:, :4]).abs().max().item(), export_case.BOX_BOUND)
            self.assertLessEqual((own[:, 4:] - other[:, 4:6]).abs().max().item(), 1e-4)

    def test_packages_run_in_16_bits(self):
        """Boxes stay in float32, and are no coarser than those of the original in 16 bits."""
        for config in ("yolov8n", "yolo26n", "rtdetr-l"):
            with self.subTest(config), mock.patch.object(package, "write_programs", lambda *_: ()):
                original = seeded_detr(config, 128, 5) if "detr" in config else seeded_yolo(config, 0, 128, 5)
                self.check_written(self.export(save_ultralytics(self.folder / "x.pt", original), "--imgsz", 128), moves=False)
                saved = package.load(self.out).to(torch.bfloat16)
                with torch.inference_mode():
                    found = saved(yolov8_seeded.soft_noise(2, 128).bfloat16())
                self.assertEqual(found.dtype, torch.float32)
                self.assertTrue(found.isfinite().all())
                boxes = found[..., :4] if found.shape[2] == 6 else found[:, :4]
                self.assertGreater((boxes != boxes.bfloat16().float()).float().mean().item(), 0.5)

    def check_detector(self, config):
        options, pixels = picture()
        original = seeded_yolo(config)
        done = self.export(save_ultralytics(self.folder / f"{config}.pt", original), *options)
        described = self.check_written(done, "the picture alone: boxes differ", "in a batch of 3: logits")
        self.assertEqual((described["name"], described["architecture"], described["max_batch"]), (config, config, 64))
        self.assertEqual((described["input"]["width"], described["input"]["height"], described["input"]["padding"]), (640, 640, "centred"))
        self.assertEqual(described["output"], {"layout": "v8", "boxes": 8400})
        self.assertEqual((len(described["classes"]), described["licence"]), (80, "AGPL-3.0"))

        views, scales = zip(*(photograph.ultralytics_letterbox(view, 640, 640) for view in photograph.three_views(pixels)))
        saved = package.load(self.out)
        with torch.inference_mode():
            expected = [original(view) for view in views]
            together, alone = saved(torch.cat(views)), saved(views[2])
        self.assertEqual(list(together.shape), [3, 84, 8400])
        # Scores of a class differ between the boxes by far more than the bounds: on a photograph and on a drawn picture.
        self.assertGreater(min(raw["scores"].std(dim=2).mean().item() for _, raw in expected), 0.1)
        for output, (boxes, raw) in [*zip(together.split(1), expected), (alone, expected[2])]:
            self.hold_boxes(output[:, :4], boxes[:, :4], scales[0])
            below = raw["scores"] < 5  # for higher scores, float32 probabilities are too coarse for the bound on logits
            self.hold_logits(torch.logit(output[:, 4:].double())[below], raw["scores"][below])

    def test_yolov8n_in_full_size(self):
        self.check_detector("yolov8n")

    def test_a_checkpoint_of_a_training(self):
        """The model is in `ema`, next to other objects of the training, with its own classes and size."""
        from ultralytics.nn.modules.conv import Conv
        from ultralytics.utils import IterableSimpleNamespace

        model = plain_yolo("yolov8n")
        model.names = ["bolt", "nut", "washer"]
        model.args = IterableSimpleNamespace(imgsz=96)
        model.half()
        arguments = {"imgsz": 90, "save_dir": pathlib.PosixPath("runs/1")}
        with mock.patch.object(Conv, "__module__", "ultralytics.nn.modules"):  # the module's name before version 8.0.44
            around = {"train_args": arguments, "best_fitness": numpy.float64(0.1), "scores": numpy.ones(3)}
            torch.save({"model": None, "ema": model, **around}, self.folder / "best.pt")
        described = self.check_written(self.export(self.folder / "best.pt"), "input rounded up to 96 x 96", "picture drawn from a seed")
        self.assertEqual((described["name"], described["classes"]), ("best", ["bolt", "nut", "washer"]))
        self.assertEqual((described["input"]["height"], described["input"]["width"]), (96, 96))
        self.check_written(self.export(self.folder / "best.pt", "--imgsz", 64, 128), "input 128 x 64")  # replaces the package
        self.assertEqual(list(package.load(self.out)(torch.zeros(2, 3, 64, 128)).shape), [2, 7, 168])

    def test_millrace_model_prints_how_to_run_a_detector_alone(self):
        weights = save_ultralytics(self.folder / "my nano.pt", plain_yolo("yolov8n"))
        done = self.run_model(weights, "--imgsz", 64)
        self.assertEqual(done.returncode, 0, done.stderr)
        words = shlex.split(done.stdout.splitlines()[-1])
        recipe, detector = words[words.index("run") + 1], words[words.index("--detector") + 1]
        self.assertIn("stages: [decode, preprocess, detect, encode]", pathlib.Path(recipe).read_text())
        self.assertEqual(detector, str(self.folder / "my nano.pkg"))

    def test_millrace_model_takes_a_detector_and_a_segmenter_in_any_order(self):
        nano = save_ultralytics(self.folder / "nano.pt", plain_yolo("yolov8n"))
        torch.save(seeded_sam("mobile_sam").state_dict(), self.folder / "sam's.pt")
        done = self.run_model("sam's.pt", nano.name, "--imgsz", 64, "--out", "new/packages")  # the size is for the detector
        self.assertEqual(done.returncode, 0, done)
        out = self.folder / "new/packages"
        models = ["--segmenter", f"{out}/sam's.pkg", "--detector", f"{out}/nano.pkg"]
        self.assertEqual(shlex.split(done.stdout.splitlines()[-1]), ["bin/millrace", "run", "--input", "PICTURES", *models, "--output", "RESULTS"])
        described = yaml.safe_load((out / "nano.pkg/model.yaml").read_text())
        self.assertEqual((described["input"]["height"], described["input"]["width"]), (64, 64))

    def test_millrace_model_refuses_two_models_of_one_task(self):
        for name in ("nano.pt", "other.pt"):
            save_ultralytics(self.folder / name, plain_yolo("yolov8n"))
        done = self.run_model("other.pt", "nano.pt")
        self.assertEqual((done.returncode, done.stdout), (2, ""), done)
        self.assertEqual(done.stderr, "export: nano.pt: is a detector, as other.pt is; name one detector and one segmenter; nothing was written\n")
        self.assertEqual(list(self.folder.glob("*.pkg")), [])

    def test_a_model_that_torch_export_refuses_runs_but_cannot_be_compiled(self):
        weights = save_ultralytics(self.folder / "model.pt", plain_yolo("yolov8n"))
        with mock.patch.object(programs, "export", side_effect=RuntimeError("a branch on data\nthe graph")):
            done = self.export(weights, "--imgsz", 64)
        described = self.check_written(done, "no model.ep.pt2, so 'millrace compile' cannot use this package: torch.export refuses the model (a branch on data)\n")
        self.assertEqual(list(described["files"]), ["model.ts"])

    def test_a_package_beyond_the_bounds_is_not_kept(self):
        path = save_ultralytics(self.folder / "model.pt", plain_yolo("yolov8n"))
        for bound, says in (("BOX_BOUND", "from the original's, allowed are -1;"), ("MAX_BOUND", "allowed are -1 (rms")):
            with self.subTest(bound), mock.patch.object(package, bound, -1.0):
                done = self.export(path, "--imgsz", 64)
                self.assertIn(says, done.refusal)
                self.assertFalse(self.out.exists() or list(self.folder.glob("*.part")))


class YoloxInOnnx(ExportCase):
    def setUp(self):
        super().setUp()
        self.onnx = program.DATA / "models" / "yolox_nano.onnx"
        if not self.onnx.is_file():
            self.skipTest(f"{self.onnx} is missing")

    def test_any_batch(self):
        options, pixels = picture()
        described = self.check_written(self.export(self.onnx, *options), "against ONNX Runtime: boxes differ", "in a batch of 3")
        self.assertEqual((described["name"], described["max_batch"], described["classes"][0]), ("yolox_nano", 64, "person"))
        self.assertEqual((described["output"], described["input"]["colour"]), ({"layout": "v8", "boxes": 3549}, "bgr"))
        self.assertEqual(described["original"], "pytorch 1.11.0 yolox in ONNX")
        self.assertIn(programs.NAME, described["files"])
        views, scales = zip(*(photograph.yolox_letterbox(view, 416, 416) for view in photograph.three_views(pixels)))
        reference = yolo_onnx.runtime_outputs(self.onnx, views)
        saved = package.load(self.out)
        with torch.inference_mode():
            together, single = saved(torch.cat(views)), torch.cat([saved(view) for view in views])
        expected = yolo_onnx.corners_of_raw(reference, 416, 416, scales[0])
        for ours in (together, single):
            self.assertLessEqual((detections.corners(ours, scales[0]) - expected).abs().max().item(), export_case.BOX_BOUND)
            self.assertLessEqual((ours[:, 4:] - (reference[..., 4:5] * reference[..., 5:]).transpose(1, 2)).abs().max().item(), 2e-4)

    def test_class_names_and_other_graphs(self):
        names = self.folder / "names.txt"
        names.write_text("bolt\nnut\n")
        for options, says in (
            (("--names", names), "2 names"),
            (("--names", self.folder / "no.txt"), "one class name per line"),
            (("--imgsz", 640), "has a fixed input of 416 x 416 pixels; leave --imgsz out"),
            (("--photograph", names), "cannot be read as a picture"),
        ):
            done = self.export(self.onnx, *options)
            self.assertIn(says, str(done.refusal), done)
        model, changed = yolo_onnx.read(self.onnx), self.folder / "changed.onnx"
        changed.write_bytes(self.onnx.read_bytes()[:5000])
        self.check_refused(changed, "cannot be read as one")
        batch = model.graph.input[0].type.tensor_type.shape.dim[0]
        batch.dim_value = 8
        yolo_onnx.onnx.save(model, str(changed))
        self.check_refused(changed, "it takes 8 pictures in every call", "batch of 1")
        batch.dim_value = 1
        for dimension, size in zip(model.graph.output[0].type.tensor_type.shape.dim, (3549, 1, 85)):
            dimension.dim_value = size
        model.graph.node.append(yolo_onnx.onnx.helper.make_node("Transpose", ["output"], ["turned"], perm=[1, 0, 2]))
        model.graph.output[0].name = "turned"
        yolo_onnx.onnx.save(model, str(changed))
        self.check_refused(changed, "whose output of [3549, 1, 85] is not that of a known YOLO")

    def test_decoded_boxes(self):
        """A YOLOX with decoded boxes, and the outputs of YOLOv5, by adding the decoding to the graph. All find the same."""
        helper, numpy_helper = yolo_onnx.onnx.helper, yolo_onnx.numpy_helper
        options, _ = picture()
        self.check_written(self.export(self.onnx, *options))
        view = photograph.yolox_letterbox(picture()[1], 416, 416)[0]
        with torch.inference_mode():
            expected = package.load(self.out)(view)
        model = yolo_onnx.read(self.onnx)
        cells = yolo_onnx.cells_of(416, 416).float()
        for name, value in (("xy", cells[:, :2]), ("strides", cells[:, 2:]), ("cuts", torch.tensor([2, 2, 81]))):
            model.graph.initializer.append(numpy_helper.from_array(value.numpy(), name))
        model.graph.node.extend([
            helper.make_node("Split", ["output", "cuts"], ["raw_centres", "raw_sides", "rest"], axis=2),
            helper.make_node("Add", ["raw_centres", "xy"], ["moved"]),
            helper.make_node("Mul", ["moved", "strides"], ["centres"]),
            helper.make_node("Exp", ["raw_sides"], ["grown"]),
            helper.make_node("Mul", ["grown", "strides"], ["sides"]),
            helper.make_node("Concat", ["centres", "sides", "rest"], ["decoded"], axis=2),
        ])
        model.opset_import[0].version = max(model.opset_import[0].version, 13)
        model.graph.output[0].name = "decoded"
        decoded = self.folder / "decoded.onnx"
        yolo_onnx.onnx.save(model, str(decoded))
        described = self.check_written(self.export(decoded, *options), "yolox boxes, 80 classes")
        self.assertEqual((described["output"], described["input"]["colour"]), ({"layout": "v8", "boxes": 3549}, "bgr"))
        with torch.inference_mode():
            self.assertLess((package.load(self.out)(view) - expected).abs().max().item(), 1e-2)
        # Three anchors in a cell: three times the same boxes.
        model.graph.node.append(helper.make_node("Concat", ["decoded"] * 3, ["three"], axis=1))
        model.graph.output[0].name = "three"
        yolo_onnx.onnx.save(model, str(decoded))
        described = self.check_written(self.export(decoded, *options), "yolov5 in ONNX, anchors boxes, 80 classes")
        self.assertEqual((described["output"], described["input"]["colour"]), ({"layout": "v8", "boxes": 3 * 3549}, "rgb"))
        with torch.inference_mode():
            self.assertLess((package.load(self.out)(view) - expected.repeat(1, 1, 3)).abs().max().item(), 1e-2)


class UltralyticsInOnnx(ExportCase):
    def made(self, config, **options):
        """The file that Ultralytics' own exporter writes."""
        import ultralytics

        model = seeded_yolo(config, 0, 128, 5)
        model.task = "segment" if config.endswith("-seg") else "detect"
        weights = save_ultralytics(self.folder / f"{config}.pt", model)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return ultralytics.YOLO(str(weights), verbose=False).export(format="onnx", simplify=False, imgsz=128, opset=17, verbose=False, **options)

    def test_exports_of_ultralytics(self):
        """A fixed batch of 1 becomes any batch. An open input gets a size. A model without NMS keeps its batch of 1."""
        for config, made, options, layout, batch in (
            ("yolov8n", {}, (), "v8", 64),
            ("yolo11n", {"dynamic": True}, ("--imgsz", 64, 128), "v8", 64),
            ("yolo26n", {"nms": False}, (), "end_to_end", 1),
        ):
            with self.subTest(config):
                file = self.made(config, **made)
                done = self.export(file, *options)
                described = self.check_written(done, f"{config} in ONNX", "against ONNX Runtime: boxes differ", moves=batch > 1, calls=((1, 0), (min(batch, 3), 0)))
                self.assertEqual((described["output"]["layout"], described["max_batch"]), (layout, batch))
                self.assertEqual((described["architecture"], len(described["classes"])), (config, 5))
                self.assertEqual(described["original"], f"Ultralytics {version('ultralytics')} {config} in ONNX")
                self.assertEqual(programs.NAME in described["files"], batch > 1)
                says = "one picture in a call, so the package has max_batch: 1 and no model.ep.pt2, which 'millrace compile' needs ("
                self.assertEqual(says in done.out, batch == 1, done)
                shutil.rmtree(self.out)

    def test_the_original_is_short_whatever_the_file_says(self):
        model = yolo_onnx.onnx.ModelProto(producer_name="é" * 200)
        made = package.original_of(*yolo_onnx.maker_of(model), "yolox")
        self.assertEqual(made, "é" * (package.ORIGINAL_BYTES // 2))

    def test_other_tasks_and_operations(self):
        self.check_refused(self.made("yolov8n-seg"), "for the task segment", "from its .pt file")
        self.check_refused(self.made("yolov8n", nms=True), "contains non-maximum suppression", "nms=None")
        file = self.made("yolov8n")
        model = yolo_onnx.read(file)
        operation = yolo_onnx.onnx.helper.make_node("Hardmax", [model.graph.output[0].name], ["changed"])
        model.graph.node.append(operation)
        model.graph.output[0].name = "changed"
        yolo_onnx.onnx.save(model, str(file))
        self.check_refused(file, "uses the operation Hardmax, which cannot be converted to PyTorch", "original checkpoint")


class Segmenters(ExportCase):
    def check_largest(self, done):
        """Checks that the printed differences from the original architecture are within the bounds."""
        found = re.findall(r"(\S+) of the deviation \(allowed \S+\), rms (\S+) ", done.out)
        self.assertEqual(len(found), 9, done)  # three of them for model.ep.pt2
        for largest, rms in found:
            self.assertTrue(float(largest) <= export_case.MAX_BOUND and float(rms) <= export_case.RMS_BOUND, done)

    def test_mobile_sam(self):
        import box_prompt_sam

        options, pixels = picture()
        sam = seeded_sam("mobile_sam")
        state = sam.state_dict()
        for key in ("image_encoder.patch_embed.seq.0.c.weight", "image_encoder.layers.1.blocks.0.attn.attention_biases", "image_encoder.neck.3.bias",
                    "mask_decoder.transformer.layers.0.cross_attn_token_to_image.q_proj.weight", "prompt_encoder.no_mask_embed.weight"):
            self.assertIn(key, state)  # names of the original
        torch.save(state, self.folder / "mobile_sam.pt")
        done = self.export(self.folder / "mobile_sam.pt", *options)
        described = self.check_written(done, "in a batch of 3: logits")
        self.check_largest(done)
        self.assertEqual((described["name"], described["task"], described["architecture"]), ("mobile_sam", "segment", "mobile_sam"))
        self.assertEqual(described["original"], f"MobileSAM mobile_sam (code of Ultralytics {version('ultralytics')})")
        self.assertEqual((described["input"]["resize"], described["output"]), ("longest_side", {"embedding": [256, 64, 64], "logits": [256, 256], "resize": "via_input"}))

        view, (scale, _) = photograph.sam_longest_side(pixels, 1024)
        boxes = torch.tensor([[50.0, 400.0, 250.0, 900.0], [20.0, 230.0, 800.0, 750.0]]) * scale
        _, logits, iou = box_prompt_sam.original_outputs(sam, view, boxes)
        saved = package.load(self.out)
        with torch.inference_mode():
            found, quality = saved.decode(saved.encode(torch.cat([view.flip(3), view])), boxes, torch.tensor([1, 1]))
        self.hold_logits(found, logits)
        self.assertLess((quality - iou).abs().max().item(), 1e-4)

    def test_sam_vit_b(self):
        options, _ = picture()
        state = seeded_sam("sam_vit_b").state_dict()
        for key in ("image_encoder.pos_embed", "image_encoder.blocks.0.attn.rel_pos_h", "image_encoder.blocks.11.mlp.lin2.bias"):
            self.assertIn(key, state)
        torch.save(state, self.folder / "sam_b.pth")
        del state
        done = self.export(self.folder / "sam_b.pth", *options)
        # moves=False: the ViT's get_rel_pos calls torch.arange with a fixed device.
        # Millrace changes it when it loads the package.
        described = self.check_written(done, "in a batch of 2: logits", moves=False, calls=((1, 2),))
        self.check_largest(done)
        self.assertEqual((described["name"], described["architecture"]), ("sam_b", "sam_vit_b"))
        shutil.rmtree(self.out)

    def test_shallow_vits_and_hieras(self):
        """Parts for videos are in the files of SAM 2 only."""
        options, _ = picture()
        with export_case.shallow_sams() as architectures:
            for family, embedding, resize in (
                ("sam_shallow", 256, ("longest_side", "via_input")),
                ("sam2_shallow", 1024, ("stretch", "direct")),
            ):
                with self.subTest(family):
                    state = export_case.perturbed(architectures[family]()).state_dict()
                    if family == "sam2_shallow":
                        self.assertIn("memory_attention.layers.0.self_attn.q_proj.weight", state)
                        state = {"model": state}
                    torch.save(state, self.folder / f"{family}.pt")
                    done = self.export(self.folder / f"{family}.pt", *options)
                    described = self.check_written(done, "in a batch of 3: logits", moves=family != "sam_shallow")
                    self.check_largest(done)
                    self.assertEqual((described["name"], described["architecture"]), (family, family))
                    self.assertIn(described["original"].split()[:2], (["segment_anything", "sam_shallow"], ["sam2", "sam2_shallow"]))
                    self.assertEqual((described["input"]["resize"], described["output"]["resize"]), resize)
                    self.assertEqual(described["output"]["embedding"], [embedding, 64, 64])
                    shutil.rmtree(self.out)

    def test_weights_that_do_not_fit(self):
        state = seeded_sam("mobile_sam").state_dict()
        path = self.folder / "sam.pt"
        for edit, says in (
            (lambda s: s.pop("image_encoder.neck.0.weight"), "lacks tensors (1: image_encoder.neck.0.weight)"),
            (lambda s: s.update(extra=torch.zeros(1)), "has tensors that the architecture does not have (1: extra)"),
            (lambda s: s.update({"image_encoder.neck.1.bias": torch.zeros(2)}), "has tensors of other shapes (1: image_encoder.neck.1.bias)"),
        ):
            with self.subTest(says):
                edited = dict(state)
                edit(edited)
                torch.save(edited, path)
                self.check_refused(path, "looks like mobile_sam but", says)


class OwnModels(ExportCase):
    """Packages that other scripts write: with seeded weights, with weights in 16 bits, and of the demo's training."""

    def run_script(self, script, *arguments):
        done = subprocess.run([sys.executable, export_case.REPOSITORY / "models/export" / script, *map(str, arguments)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_seeded_segmenter_and_the_same_in_16_bits(self):
        half = self.folder / "half.pkg"
        self.run_script("mobile_sam_seeded.py", "--small", self.out)
        self.check_methods(self.out)
        self.run_script("halve.py", self.out, half)
        described, halved = (yaml.safe_load((folder / "model.yaml").read_text()) for folder in (self.out, half))
        self.assertNotEqual(described.pop("files"), halved.pop("files"))
        self.assertEqual(described, halved)
        self.check_methods(half)

    def test_weights_in_16_bits_rounded_to_bf16(self):
        rounded = self.folder / "rounded.pkg"
        self.run_script("mobile_sam_seeded.py", "--small", self.out)
        self.run_script("halve.py", "--round", self.out, rounded)
        self.check_methods(rounded)
        original, weights = (torch.jit.load(folder / "model.ts").state_dict() for folder in (self.out, rounded))
        for name, weight in weights.items():
            if weight.is_floating_point():
                self.assertEqual(weight.dtype, torch.float16)
                torch.testing.assert_close(weight, original[name].bfloat16().half(), rtol=0, atol=0)

    def test_the_demo_packages(self):
        sys.path.append(str(export_case.REPOSITORY / "models/demo"))
        import demo_detector
        import demo_segmenter
        import packages

        torch.manual_seed(0)
        packages.detector_package(demo_detector.Detector(6), "front", 0, self.folder / "front.pkg")
        packages.segmenter_package(demo_segmenter.Segmenter(), 0, self.folder / "segmenter.pkg")
        for name in ("front", "segmenter"):
            package, copy = self.folder / f"{name}.pkg", self.folder / f"{name}-copy.pkg"
            self.check_methods(package)
            packages.compilable_package(package, copy)
            self.check_methods(copy)
            described, copied = (yaml.safe_load((folder / "model.yaml").read_text()) for folder in (package, copy))
            self.assertEqual(list(copied["files"]), ["model.ts", "model.ep.pt2"])
            self.assertEqual(copied["files"].pop("model.ts"), described["files"].pop("model.ts"))
            self.assertEqual(described | {"files": {}}, copied | {"files": {}})


if __name__ == "__main__":
    program.main(needs_program=False)
