"""Exporters on seeded weights of the real architectures: packages agree with the original, at any batch size."""

import functools
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from unittest import mock

import export_case
import numpy
import torch
import yaml
from export_case import ExportCase, picture, plain_yolo, save_ultralytics, seeded_sam, seeded_yolo

import package
import photograph
import program
import yolox_onnx


class UltralyticsDetectors(ExportCase):
    def check_detector(self, config):
        options, pixels = picture()
        original = seeded_yolo(f"{config}.yaml")
        done = self.export(save_ultralytics(self.folder / f"{config}.pt", original), *options)
        described = self.check_written(done, "the picture alone: boxes differ", "in a batch of 3: logits")
        self.assertEqual((described["name"], described["architecture"], described["max_batch"]), (config, config, 64))
        self.assertEqual((described["input"]["width"], described["input"]["height"], described["input"]["padding"]), (640, 640, "centred"))
        self.assertEqual(described["output"], {"layout": "v8", "strides": [8, 16, 32]})
        self.assertEqual((len(described["classes"]), described["licence"]), (80, "AGPL-3.0"))

        views, scales = zip(*(photograph.ultralytics_letterbox(view, 640, 640) for view in photograph.three_views(pixels)))
        saved = package.load(self.out)
        with torch.inference_mode():
            expected = [original(view) for view in views]
            together, alone = saved(torch.cat(views)), saved(views[2])
        self.assertEqual(list(together.shape), [3, 84, 8400])
        self.assertGreater(max(raw["scores"].sigmoid().max().item() for _, raw in expected), 0.25)  # the picture has objects to compare
        for output, (boxes, raw) in [*zip(together.split(1), expected), (alone, expected[2])]:
            self.hold_boxes(output[:, :4], boxes[:, :4], scales[0])
            below = raw["scores"] < 5  # for higher scores, float32 probabilities are too coarse for the bound on logits
            self.hold_logits(torch.logit(output[:, 4:].double())[below], raw["scores"][below])

    def test_yolov8n(self):
        self.check_detector("yolov8n")

    def test_yolo11n(self):
        self.check_detector("yolo11n")

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

    def test_a_family_without_tests_says_so(self):
        path = save_ultralytics(self.folder / "five.pt", plain_yolo("yolov5n"))
        self.check_written(self.export(path, "--imgsz", 64), "tests cover YOLOv8 and YOLO11; only the comparison below covers yolov5n")

    def test_a_package_beyond_the_bounds_is_not_kept(self):
        path = save_ultralytics(self.folder / "model.pt", plain_yolo("yolov8n"))
        for bound, says in (("BOX_BOUND", "from the original's, allowed are -1;"), ("MAX_BOUND", "allowed are -1 (rms")):
            with self.subTest(bound), mock.patch.object(package, bound, -1.0):
                done = self.export(path, "--imgsz", 64)
                self.assertIn(says, done.refusal)
                self.assertFalse(self.out.exists() or list(self.folder.glob("*.part")))


class Yolox(ExportCase):
    def test_any_batch(self):
        onnx = program.DATA / "models" / "yolox_nano.onnx"
        if not onnx.is_file():
            self.skipTest(f"{onnx} is missing")
        options, pixels = picture()
        described = self.check_written(self.export(onnx, *options), "against ONNX Runtime: boxes differ", "in a batch of 3")
        self.assertEqual((described["name"], described["max_batch"], described["classes"][0]), ("yolox_nano", 64, "person"))
        views, scales = zip(*(photograph.yolox_letterbox(view, 416, 416) for view in photograph.three_views(pixels)))
        reference = yolox_onnx.runtime_outputs(onnx, views)
        saved = package.load(self.out)
        with torch.inference_mode():
            together, single = saved(torch.cat(views)), torch.cat([saved(view) for view in views])
        self.hold_logits(together[..., :4], single[..., :4])
        self.hold_logits(together[..., 4:], single[..., 4:])
        decoded = [yolox_onnx.corners(output, 416, 416, scales[0]) for output in (together, single, reference)]
        for ours in decoded[:2]:
            self.assertLessEqual((ours - decoded[2]).abs().max().item(), export_case.BOX_BOUND)

    def test_class_names_and_files_that_are_not_yolox(self):
        onnx = program.DATA / "models" / "yolox_nano.onnx"
        if not onnx.is_file():
            self.skipTest(f"{onnx} is missing")
        names = self.folder / "names.txt"
        names.write_text("bolt\nnut\n")
        for options, says in (
            (("--names", names), "2 names"),
            (("--names", self.folder / "no.txt"), "one class name per line"),
            (("--imgsz", 640), "leave --imgsz out"),
            (("--photograph", names), "cannot be read as a picture"),
        ):
            done = self.export(onnx, *options)
            self.assertIn(says, str(done.refusal), done)
        model = yolox_onnx.read(onnx)
        decoded = self.folder / "decoded.onnx"
        model.graph.node.append(yolox_onnx.onnx.helper.make_node("Exp", ["output"], ["decoded"]))
        yolox_onnx.onnx.save(model, str(decoded))
        self.check_refused(decoded, "decoded inside", "--decode_in_inference")
        other = self.folder / "other.onnx"
        model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 25200
        yolox_onnx.onnx.save(model, str(other))
        self.check_refused(other, "an ONNX model with inputs and outputs [1, 3, 416, 416], [1, 25200, 85]", "has [1, 3549, 5 + classes]")
        other.write_bytes(onnx.read_bytes()[:5000])
        self.check_refused(other, "cannot be read as one")


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
        """The larger families by shallow encoders of the same classes. Parts for videos are in the files of SAM 2 only."""
        import sam_checkpoint
        from ultralytics.models.sam import build

        vit = functools.partial(build._build_sam, 64, 2, 4, [1])
        hiera = functools.partial(build._build_sam2, 24, (1, 1, 3, 1), 1, (3,), [192, 96, 48, 24], encoder_window_spec=(8, 4, 14, 7))
        small = {"sam_shallow": sam_checkpoint.Family("vit"), "sam2_shallow": sam_checkpoint.Family("hiera", **sam_checkpoint.SAM2)}
        options, _ = picture()
        with (
            mock.patch.multiple(build, create=True, vit=vit, hiera=hiera),
            mock.patch.dict(sam_checkpoint.FAMILIES, small),
            mock.patch.dict(sam_checkpoint.VIT, {64: "sam_shallow"}),
            mock.patch.dict(sam_checkpoint.HIERA, {(24, 6): "sam2_shallow"}),
        ):
            for family, architecture, embedding, resize in (
                ("sam_shallow", vit, 256, ("longest_side", "via_input")),
                ("sam2_shallow", hiera, 1024, ("stretch", "direct")),
            ):
                with self.subTest(family):
                    state = export_case.perturbed(architecture()).state_dict()
                    if family == "sam2_shallow":
                        self.assertIn("memory_attention.layers.0.self_attn.q_proj.weight", state)
                        state = {"model": state}
                    torch.save(state, self.folder / f"{family}.pt")
                    done = self.export(self.folder / f"{family}.pt", *options)
                    described = self.check_written(done, "in a batch of 3: logits", moves=family != "sam_shallow")
                    self.check_largest(done)
                    self.assertEqual((described["name"], described["architecture"]), (family, family))
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

    def test_the_demo_packages(self):
        sys.path.append(str(export_case.REPOSITORY / "models/demo"))
        import demo_detector
        import demo_segmenter
        import packages

        torch.manual_seed(0)
        packages.detector_package(demo_detector.Detector(6), "front", 0, self.folder / "front.pkg")
        packages.segmenter_package(demo_segmenter.Segmenter(), 0, self.folder / "segmenter.pkg")
        for name in ("front", "segmenter"):
            self.check_methods(self.folder / f"{name}.pkg")


if __name__ == "__main__":
    program.main(needs_program=False)
