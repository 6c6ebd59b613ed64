"""Packages of bundles of MONAI: the values of a run are those of MONAI's own transforms, network and inferer.

The weights are random, and the bundles are as those of the Model Zoo. The formats set of tools/setup.sh has MONAI;
without it, these tests skip.
"""

import argparse
import contextlib
import copy
import io
import json
import re
import shlex
import shutil
import sys
from unittest import mock

import numpy
import program
import torch
import yaml
from PIL import Image

sys.path.append(str(program.ROOT / "models/export"))

UNET = {"_target_": "UNet", "spatial_dims": 3, "in_channels": "@channels", "out_channels": 3, "channels": [4, 8, 12], "strides": [2, 2], "num_res_units": 1, "norm": "batch"}
SEGRESNET = {"_target_": "monai.networks.nets.SegResNet", "spatial_dims": 3, "in_channels": 2, "out_channels": 3, "init_filters": 8, "blocks_down": [1, 1], "blocks_up": [1]}
# Deep supervision makes it a network that torch.jit.script refuses.
DYNUNET = {"_target_": "monai.networks.nets.dynunet.DynUNet", "spatial_dims": 3, "in_channels": 1, "out_channels": 3, "kernel_size": [3, 3, 3], "strides": [1, 2, 2],
           "upsample_kernel_size": [2, 2], "filters": [4, 8, 8], "deep_supervision": True, "deep_supr_num": 1}  # fmt: skip
BASIC_UNET = {"_target_": "BasicUNet", "spatial_dims": 2, "in_channels": 3, "out_channels": 1, "features": [4, 4, 8, 8, 8, 4]}
CLASSES = {"0": "background", "1": "liver", "2": "tumour"}

LOAD = [{"_target_": "LoadImaged", "keys": "@image_key"}, {"_target_": "EnsureChannelFirstd", "keys": "@image_key"}]
ORIENTATION = {"_target_": "Orientationd", "keys": "@image_key", "axcodes": "RAS"}
SPACING = {"_target_": "Spacingd", "keys": ["image", "label"], "pixdim": [0.75, 0.8, 2.5], "mode": ["bilinear", "nearest"], "allow_missing_keys": True}
RANGE = {"_target_": "ScaleIntensityRanged", "keys": "@image_key", "a_min": -57, "a_max": 164, "b_min": -1.0, "b_max": 1.0, "clip": True}
ZSCORE = {"_target_": "monai.transforms.NormalizeIntensityd", "keys": "image", "nonzero": True, "channel_wise": True}
ENSURE = {"_target_": "EnsureTyped", "keys": "@image_key", "dtype": "$torch.float32"}


def configuration(network, transforms, roi, activation=None, discrete=None, **changes):
    """An inference configuration as those of the Model Zoo: only the expressions in it are ones that no package needs."""
    return copy.deepcopy({
        "imports": ["$import glob", "$import os"],
        "bundle_root": ".",
        "image_key": "image",
        "channels": 1,
        "output_dir": "$@bundle_root + '/eval'",
        "device": "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')",
        "network_def": network,
        "network": "$@network_def.to(@device)",
        "preprocessing": {"_target_": "Compose", "transforms": [*LOAD, *transforms, ENSURE]},
        "inferer": {"_target_": "SlidingWindowInferer", "roi_size": list(roi), "sw_batch_size": 4, "overlap": 0.5, "mode": "gaussian"},
        "postprocessing": {
            "_target_": "Compose",
            "transforms": [
                {"_target_": "Activationsd", "keys": "pred"} | (activation or {"softmax": True}),
                {"_target_": "Invertd", "keys": "pred", "transform": "@preprocessing", "orig_keys": "@image_key", "nearest_interp": False, "to_tensor": True},
                {"_target_": "AsDiscreted", "keys": ["pred", "label"]} | (discrete or {"argmax": [True, False]}),
                {"_target_": "SaveImaged", "keys": "pred", "output_dir": "@output_dir"},
            ],
        },
        "handlers": [{"_target_": "CheckpointLoader", "load_path": "$@bundle_root + '/models/model.pt'", "load_dict": {"model": "@network"}}],
    } | changes)  # fmt: skip


def without_expressions(config):
    """What MONAI needs to run the same: expressions that ask for a device or a type are no matter of the test."""
    kept = {key: config[key] for key in ("image_key", "channels", "network_def", "preprocessing", "inferer")}
    return json.loads(json.dumps(kept).replace("$torch.float32", "float32"))


class Case(program.Case):
    def setUp(self):
        super().setUp()
        self.formats = program.require_formats()
        torch.set_num_threads(1)

    def network(self, config, seed=0):
        """MONAI's own network with random weights, whose outputs differ enough to give several classes."""
        from monai.bundle import ConfigParser

        torch.manual_seed(seed)
        net = ConfigParser({"channels": config["channels"], "network_def": config["network_def"]}).get_parsed_content("network_def").eval()
        for module in net.modules():  # statistics of a training, in place of 0 and 1
            if isinstance(module, torch.nn.BatchNorm3d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.3, 0.8)
        return net

    def write_bundle(self, config, net, channels=1, classes=None, name="spleen", weights=None, suffix="json"):
        folder = self.folder / name
        for inside in ("configs", "models"):
            (folder / inside).mkdir(parents=True)
        classes = classes or CLASSES
        described = {
            "inputs": {"image": {"type": "image", "format": "hounsfield", "num_channels": channels, "spatial_shape": ["8*n"] * 3, "dtype": "float32", "is_patch_data": True, "channel_def": {"0": "image"}}},
            "outputs": {"pred": {"type": "image", "format": "segmentation", "num_channels": len(classes), "spatial_shape": ["8*n"] * 3, "channel_def": classes}},
        }
        (folder / "configs/metadata.json").write_text(json.dumps({"version": "0.5.9", "name": "Spleen CT segmentation", "monai_version": "1.4.0", "network_data_format": described}))
        (folder / f"configs/inference.{suffix}").write_text((json.dumps if suffix == "json" else yaml.safe_dump)(config))
        if isinstance(weights, str):
            weights, script = None, weights
            torch.jit.script(net).save(folder / "models" / script)
        else:
            torch.save(weights or net.state_dict(), folder / "models/model.pt")
        return folder

    def convert(self, *words, code=program.OK, **options):
        done = program.millrace("model", *words, "--task", "semantic", **options)
        self.assertEqual(done.code, code, done)
        return done

    def run_as_noted(self, package, done, item, recipe):
        """The values of a run with the options that the notes advise."""
        advised = re.findall(r"^note: to blend windows as the bundle does, add (.*)$", done.out, re.MULTILINE)
        settings = [f"semantic.model={package}", "semantic.values=logits"]
        self.run_ok(program.ROOT / f"configs/{recipe}.yaml", "--input", item, *(word for one in settings for word in ("--set", one)),
                    *(word for line in advised for word in shlex.split(line)), "--format", "npy", "--output", self.folder / "out")
        return numpy.load(self.folder / f"out/values/{item.name}.npy")

    def expected(self, config, net, item):
        """The logits [channel, x, y, z] of MONAI's transforms and inferer."""
        from monai.bundle import ConfigParser

        parser = ConfigParser(without_expressions(config))
        inputs = parser.get_parsed_content("preprocessing")({"image": str(item)})["image"]
        with torch.inference_mode():
            found = parser.get_parsed_content("inferer")(inputs[None].as_tensor(), net)
        return found[0].numpy()

    def compare(self, values, expected):
        """Compares values [z, y, x, channel] with MONAI's."""
        found = values.transpose(*reversed(range(values.ndim)))
        self.assertEqual(found.shape, expected.shape)
        self.assertGreater(expected.std(), 0.05)
        self.assertLess(abs(found - expected).max(), 1e-4)

    def written(self, package):
        return yaml.safe_load((package / "model.yaml").read_text())

    def volume(self, channels=1, affine=(-0.75, 0.8, 2.5)):
        """A volume on air. By default, its x axis goes to the left."""
        import nibabel

        voxels = numpy.zeros((21, 18, 13, channels), numpy.float32)
        voxels[3:-2, 2:-4, 1:-3] = numpy.random.default_rng(1).normal(40, 120, (16, 12, 9, channels))
        path = self.folder / "volume.nii.gz"
        nibabel.save(nibabel.Nifti1Image(voxels if channels > 1 else voxels[..., 0], numpy.diag([*affine, 1])), path)
        return path


class Runs(Case):
    def test_ct_with_orientation_spacing_and_a_range(self):
        config = configuration(UNET, [ORIENTATION, SPACING, RANGE], (16, 12, 8))
        net = self.network(config)
        bundle = self.write_bundle(config, net)
        done = self.convert(bundle)
        package = bundle.with_suffix(".pkg")
        written = self.written(package)
        self.assertEqual(written["input"], {"width": 16, "height": 12, "depth": 8, "axes": "xyz", "orientation": "RAS", "spacing": [0.75, 0.8, 2.5],
                                            "clip": [-57, 164], "scale": 1, "mean": [53.5], "std": [110.5]})
        self.assertEqual((written["classes"], written["output"]), (list(CLASSES.values()), {"channels": 3, "activation": "softmax"}))
        self.assertEqual((written["architecture"], written["original"]), ("UNet", "MONAI bundle Spleen CT segmentation 0.5.9"))
        self.assertIn("\nnote: to blend windows as the bundle does, add --set tiles.overlap=0.5\n", done.out)
        self.assertIn("Volumes whose voxels have the size already stay the same\n", done.out)
        self.assertIn(f"configs/volume.yaml --input PICTURES --set semantic.model={package} ", done.out)
        volume = self.volume()
        expected = self.expected(config, net, volume)
        self.compare(self.run_as_noted(package, done, volume, "volume")[:, :, ::-1], expected)
        self.assertEqual(len(numpy.unique(expected.argmax(0))), 3)

    def test_two_channels_with_the_zscore_of_what_is_not_zero(self):
        config = configuration(SEGRESNET, [ZSCORE], (16, 16, 8), {"sigmoid": True}, {"threshold": 0.4})
        config["inferer"] |= {"mode": "constant", "overlap": 0.375}
        net = self.network(config, 1)
        bundle = self.write_bundle(config, net, 2, {"0": "whole tumour", "1": "core", "2": "enhancing"}, weights={"epoch": 3, "state_dict": net.state_dict()}, suffix="yaml")
        done = self.convert(bundle / "models/model.pt")
        package = bundle / "models/model.pkg"
        written = self.written(package)
        self.assertEqual(written["input"], {"width": 16, "height": 16, "depth": 8, "axes": "xyz", "channels": 2, "zscore": "nonzero", "channel_wise": True})
        self.assertEqual((written["classes"], written["output"]), (["whole tumour", "core", "enhancing"], {"channels": 3, "activation": "sigmoid", "threshold": 0.4}))
        self.assertIn("add --set tiles.overlap=0.375 --set tiles.weights=constant\n", done.out)
        self.assertIn("note: Millrace takes the channels of a volume from one NIfTI with 2 volumes\n", done.out)
        self.assertIn("note: classes of MONAI may overlap.", done.out)
        volume = self.volume(2)
        self.compare(self.run_as_noted(package, done, volume, "volume"), self.expected(config, net, volume))

    def test_pictures_have_the_axes_of_monai_s_readers(self):
        norm = {"_target_": "NormalizeIntensityd", "keys": "image", "subtrahend": [0.485, 0.456, 0.406], "divisor": [0.229, 0.224, 0.225], "channel_wise": True}
        limits = {"_target_": "ScaleIntensityRanged", "keys": "image", "a_min": -1.5, "a_max": 1.5, "b_min": -1.5, "b_max": 1.5, "clip": True}
        config = configuration(BASIC_UNET, [{"_target_": "ScaleIntensityRanged", "keys": "image", "a_min": 0, "a_max": 255, "b_min": 0, "b_max": 1}, norm, limits], (32, 48), {"sigmoid": True}, {"threshold": 0.5})
        config["postprocessing"]["transforms"].insert(3, {"_target_": "KeepLargestConnectedComponentd", "keys": "pred", "applied_labels": "$[1]"})
        net = self.network(config, 2)
        bundle = self.write_bundle(config, net, 3, {"0": "tool"}, name="endoscopy")
        done = self.convert(bundle)
        written = self.written(bundle.with_suffix(".pkg"))
        self.assertEqual((written["input"]["width"], written["input"]["height"]), (32, 48))
        self.assertEqual(written["input"]["colour"], "rgb")
        self.assertEqual([set(channel) for channel in written["input"]["channels"]], [{"clip", "scale", "mean", "std"}] * 3)  # a range for each channel
        self.assertEqual((written["classes"], written["output"]), (["tool"], {"channels": 1, "activation": "sigmoid", "threshold": 0.5}))
        self.assertIn("note: MONAI then applies KeepLargestConnectedComponentd to its result, and Millrace does not\n", done.out)
        picture = program.write_picture(self.folder / "a.png", 70, 56)
        self.assertEqual(Image.open(picture).size, (70, 56))
        expected = self.expected(config, net, picture)
        self.assertEqual(expected.shape, (1, 70, 56))
        self.compare(self.run_as_noted(bundle.with_suffix(".pkg"), done, picture, "tiled"), expected)

    def test_torchscript_needs_no_monai_and_slices_are_windows(self):
        config = configuration(BASIC_UNET | {"in_channels": 1, "out_channels": 3}, [{"_target_": "ScaleIntensityd", "keys": "image"}], (32, 32))
        config["inferer"] |= {"_target_": "SliceInferer", "spatial_dim": 2}
        net = self.network(config, 3)
        bundle = self.write_bundle(config, net, weights="model.ts")
        done = self.convert(bundle / "models/model.ts", env=self.without_monai())
        package = bundle / "models/model.pkg"
        written = self.written(package)
        self.assertEqual(written["input"], {"width": 32, "height": 32, "depth": 1, "axes": "xyz", "percentiles": [0.0, 100.0], "clip_to_percentiles": False})
        volume = self.volume()
        self.compare(self.run_as_noted(package, done, volume, "volume"), self.expected(config, net, volume))

    def without_monai(self):
        """Variables of an interpreter that has no MONAI."""
        script = self.write("python", f"#!/bin/sh\nshift 2\nexec {shlex.quote(sys.executable)} -s -B -c '{WITHOUT_MONAI}' \"$@\"\n")
        script.chmod(0o755)
        return {"MILLRACE_PYTHON": str(script)}

    def test_without_monai(self):
        config = configuration(UNET, [RANGE], (16, 12, 8))
        bundle = self.write_bundle(config, self.network(config))
        done = self.convert(bundle, code=program.ENVIRONMENT, env=self.without_monai())
        self.assertIn(f"this bundle needs MONAI, which is not installed; '{program.ROOT}/tools/setup.sh formats' installs it next to the Python set", done.err)
        self.assertFalse(bundle.with_suffix(".pkg").exists())


WITHOUT_MONAI = "import os, runpy, sys; sys.argv = sys.argv[1:]; sys.path[0] = os.path.dirname(sys.argv[0]); sys.modules[\"monai\"] = None; runpy.run_path(sys.argv[0], run_name=\"__main__\")"


class Exports(Case):
    """They call the exporter in this process: starting it takes seconds."""

    def setUp(self):
        super().setUp()
        self.config = configuration(UNET, [ORIENTATION, SPACING, RANGE], (16, 12, 8))
        self.bundle = self.write_bundle(self.config, self.network(self.config))

    def export(self, *words):
        import command_line
        import export

        parser = argparse.ArgumentParser()
        parser.add_argument("weights")
        parser.add_argument("out")
        command_line.add_options(parser)
        arguments = parser.parse_args([str(self.bundle), str(self.folder / "net.pkg"), "--task", "semantic", *map(str, words)])
        with contextlib.redirect_stdout(io.StringIO()) as out:
            export.export(arguments)
        return out.getvalue()

    def check(self, says, change=None, *words):
        """Exports the bundle with a changed configuration, which must be refused with these words."""
        from package import Refused

        config = copy.deepcopy(self.config)
        if change:
            change(config)
            (self.bundle / "configs/inference.json").write_text(json.dumps(config))
        with self.assertRaises(Refused) as caught:
            self.export(*words)
        self.assertIn(says, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))
        self.assertEqual(list(self.folder.glob("*.pkg*")), [])

    def test_no_code_of_a_bundle_runs(self):
        mark = self.folder / "ran"
        run = f"$open({str(mark)!r}, 'w').close()"
        network = lambda **changes: lambda config: config["network_def"].update(changes)  # noqa: E731
        self.check("network_def::out_channels is the Python expression", network(out_channels=run))
        self.check("network_def::strides::1 is the Python expression '$1 + 1', and the exporter runs no code of a bundle; write the value in its place, or add --trust", network(strides=[2, "$1 + 1"]))
        self.check("preprocessing::transforms::4::clip is the Python expression '$True'", lambda config: config["preprocessing"]["transforms"][4].update(clip="$True"))
        self.check("preprocessing is the Python expression", lambda config: config.update(preprocessing=run))
        for target in ("os.system", "builtins.eval", "subprocess.Popen", "scripts.nets.UNet", "torch.nn.functional.relu", "monai.networks.nets.torch.load", "monai.data.Dataset"):
            self.check(f"network_def makes '{target}'; without --trust, the exporter makes only layers of torch.nn and these networks of monai.networks.nets: AHNet, ", lambda config, target=target: config.update(network_def={"_target_": target, "command": str(mark)}))
        self.check("network_def::act makes 'os.mkdir'", network(act={"_target_": "os.mkdir", "path": str(mark)}))
        self.check("network_def makes 'UNet'", network(_mode_="debug"))
        self.assertFalse(mark.exists())

    def test_no_network_downloads_or_reads_files(self):
        import monai_bundle
        import monai_config

        def unwanted(*arguments, **options):
            tried.append(arguments)
            raise OSError("there is no network in a test")

        tried, url = [], "https://example.org/weights.pth"
        with mock.patch("socket.getaddrinfo", unwanted), mock.patch("urllib.request.urlopen", unwanted), mock.patch("urllib.request.urlretrieve", unwanted), mock.patch("torch.load", unwanted):
            for name, options in (("HoVerNet", {"pretrained_url": url}), ("Transchex", {"in_channels": 3, "path_or_repo_id": "some/body"}), ("cell_sam_wrapper.CellSamWrapper", {"checkpoint": url}),
                                  ("EfficientNetBN", {"model_name": "efficientnet-b0"}), ("MILModel", {"num_classes": 2})):  # fmt: skip
                self.check(f"{name}'; without --trust, the exporter makes only", lambda config, made={"_target_": f"monai.networks.nets.{name}"} | options: config.update(network_def=made))
            flexible = {"_target_": "FlexibleUNet", "in_channels": 3, "out_channels": 2, "backbone": "efficientnet-b0", "pretrained": True}
            (self.bundle / "configs/inference.json").write_text(json.dumps({"network_def": flexible}))
            net = monai_bundle.instance(monai_config.Config(self.bundle, False), flexible, ["network_def"])
        self.assertEqual((type(net).__name__, tried), ("FlexibleUNet", []))

    def test_trust_runs_the_code_of_a_bundle(self):
        (self.bundle / "scripts").mkdir()
        (self.bundle / "scripts/own.py").write_text("from monai.networks.nets import UNet\n\n\nclass Own(UNet):\n    pass\n")
        self.config["network_def"] |= {"_target_": "scripts.own.Own", "out_channels": "$@channels + 2", "strides": "$[2] * 2"}
        self.config["preprocessing"]["transforms"][4]["a_max"] = "$100 + 64"
        (self.bundle / "configs/inference.json").write_text(json.dumps(self.config))
        self.export("--trust")
        written = self.written(self.folder / "net.pkg")
        self.assertEqual((written["architecture"], written["input"]["clip"], written["output"]["channels"]), ("Own", [-57, 164], 3))

    def test_a_network_that_can_only_be_traced(self):
        shutil.rmtree(self.bundle)
        config = configuration(DYNUNET, [RANGE], (16, 12, 8))
        net = self.network(config, 4)
        self.write_bundle(config, net)
        self.assertIn("note: the network was traced for its windows, so leave tiles.roi as it is\n", self.export())
        made = torch.jit.load(self.folder / "net.pkg/model.ts")
        for count in (1, 3):
            images = torch.randn(count, 1, 16, 12, 8)
            with torch.inference_mode():
                self.assertLess((made(images) - net(images)).abs().max().item(), 1e-5)

    def test_references_are_looked_up(self):
        self.config |= {"patch": ["@sizes::in_plane", 12, "%sizes#deep"], "sizes": {"in_plane": "%network_def::channels::2", "deep": 8}}
        self.config["inferer"]["roi_size"] = "@patch"
        (self.bundle / "configs/inference.json").write_text(json.dumps(self.config))
        self.export()
        self.assertEqual({name: self.written(self.folder / "net.pkg")["input"][name] for name in ("width", "height", "depth")}, {"width": 12, "height": 12, "depth": 8})

    def test_a_bundle_without_windows(self):
        def change(config):
            config["inferer"] = {"_target_": "SimpleInferer"}

        self.check("spleen: names no size of windows, neither as roi_size of the inferer nor as spatial_shape; add --roi", change)
        self.assertIn("note: MONAI gives the network whole images, without windows.", self.export("--roi", 16, 8, 12))
        self.assertEqual(self.written(self.folder / "net.pkg")["input"]["height"], 8)

    def test_windows_that_the_network_cannot_take(self):
        self.config = configuration(BASIC_UNET, [], (16, 16))  # one pixel remains at the lowest resolution
        net = self.network(self.config)
        for weights in (None, "model.ts"):
            shutil.rmtree(self.bundle)
            self.write_bundle(self.config, net, 3, {"0": "tool"}, weights=weights)
            self.check("cannot take windows [2, 3, 16, 16]")

    def test_what_a_package_cannot_express(self):
        def transforms(*found):
            return lambda config: config["preprocessing"].update(transforms=[*LOAD, *found])

        def inferer(**changes):
            return lambda config: config["inferer"].update(changes)

        def post(*found):
            return lambda config: config.update(postprocessing=list(found))

        for other in ("Resized", "HistogramNormalized", "monai.transforms.Flipd", "Lambdad", "Rotate90d"):
            self.check(f"preprocessing::transforms::2 ({other}) changes values or places in a way that packages cannot express", transforms({"_target_": other, "keys": "image"}))
        wanted = "preprocessing has no transform with the key 'image' of metadata.json, only with 'img', 'label'; correct the key"
        self.check(wanted, lambda config: config["preprocessing"].update(transforms=[one | {"keys": ["img", "label"]} for one in (*LOAD, ORIENTATION, RANGE)]))
        self.check("postprocessing has no transform with the key 'pred' of metadata.json, only with 'out'", post({"_target_": "Activationsd", "keys": "out", "sigmoid": True}, {"_target_": "AsDiscreted", "keys": "out", "threshold": 0.5}))
        makes = "transforms::0 ({}) makes the item 'image' of others, which packages cannot do; the transforms must have 'image' from the first one"
        for target, options in (("ConcatItemsd", {"name": "image"}), ("CopyItemsd", {"names": ["image", "t1_raw"]}), ("monai.transforms.MeanEnsembled", {"output_key": "image"})):
            self.check(makes.format(target), lambda config, made={"_target_": target, "keys": ["t1", "t2"]} | options: config["preprocessing"].update(transforms=[made, *LOAD, RANGE]))
        self.check("(scripts.mine.Scaled) is no transform of MONAI", transforms({"_target_": "scripts.mine.Scaled", "keys": "image"}))
        self.check("(Spacingd) has diagonal, which packages cannot have", transforms(SPACING | {"diagonal": True}))
        self.check("scales values before and after Spacing", transforms(RANGE, SPACING, RANGE))
        self.check("has Spacing before Orientation", transforms(SPACING, ORIENTATION))
        self.check("(ScaleIntensityRangePercentilesd) scales to -1 and 1", transforms({"_target_": "ScaleIntensityRangePercentilesd", "keys": "image", "lower": 1, "upper": 99, "b_min": -1, "b_max": 1}))
        self.check("(ScaleIntensityRanged) limits values to an empty range", transforms(RANGE, RANGE | {"a_min": 2, "a_max": 3}))
        self.check("(ScaleIntensityRanged) changes values behind a scaling by statistics", transforms(ZSCORE, RANGE))
        self.check("takes values that are not zero behind a scaling", transforms(RANGE, ZSCORE))
        crop = {"_target_": "CropForegroundd", "keys": "image", "source_key": "image"}
        self.check("takes statistics of a volume that was cut to the foreground of 'label'", transforms(crop | {"source_key": "label"}, ZSCORE))
        for changes, then in (({"margin": 2}, {"nonzero": False}), ({"select_fn": "$lambda image: image > 5"}, {})):
            self.check("takes statistics of a volume that was cut with options", transforms(crop | changes, ZSCORE | then))
        limited = {"_target_": "ScaleIntensityRanged", "keys": "image", "a_min": 10, "a_max": 4000, "b_min": 10, "b_max": 4000, "clip": True}
        self.check("takes statistics of a volume that was cut after its values were limited", transforms(limited, crop, ZSCORE | {"nonzero": False}))
        self.check("takes values that are not zero of a volume that was cut and limited to a range without zero", transforms(crop, limited, ZSCORE | {"nonzero": True}))
        self.check("has one of subtrahend and divisor", transforms({"_target_": "NormalizeIntensityd", "keys": "image", "divisor": 3}))
        self.check("inferer is SaliencyInferer; the exporter takes SlidingWindowInferer", inferer(_target_="SaliencyInferer"))
        self.check("names no size of windows", inferer(roi_size=[16, 12, -1]))
        self.check("its windows have the sides [16, 12], but its network takes 3 dimensions", inferer(roi_size=[16, 12]))
        self.check("has a threshold behind softmax", post({"_target_": "Activationsd", "keys": "pred", "softmax": True}, {"_target_": "AsDiscreted", "keys": "pred", "threshold": 0.5}))
        self.check("(Activationsd) has other, which packages cannot have", post({"_target_": "Activationsd", "keys": "pred", "other": "$torch.tanh"}))
        for option, value in (("roi", 8), ("spacing", (1, 1, 1)), ("clip", (0, 1)), ("activation", "none")):
            self.check(f"--{option} comes from the bundle; leave it out", None, f"--{option}", *(value if isinstance(value, tuple) else [value]))

    def test_files_that_do_not_fit(self):
        network = lambda **changes: lambda config: config["network_def"].update(changes)  # noqa: E731
        self.check("model.pt: looks like UNet but has tensors of other shapes", network(channels=[4, 8, 16]))
        self.check("model.pt: looks like UNet but", network(num_res_units=2))
        self.check("MONAI's UNet cannot be made with these arguments (TypeError: ", network(width=3))
        self.check("refers to itself; correct the reference", network(in_channels="@network_def::in_channels"))
        self.check("nothing does not exist, but is needed", network(in_channels="@nothing"))
        self.check("has no network_def or network with a _target_", lambda config: config.pop("network_def"))
        self.check("is not as MONAI writes it (TypeError: ", lambda config: config["preprocessing"]["transforms"][4].pop("a_min"))
        metadata = self.bundle / "configs/metadata.json"
        described = json.loads(metadata.read_text())
        described["network_data_format"]["outputs"]["pred"]["num_channels"] = 2
        metadata.write_text(json.dumps(described))
        self.check("metadata.json: the output has 2 channels, but the network returns 3; correct num_channels", network())
        described["network_data_format"]["inputs"]["points"] = {"num_channels": 1}
        metadata.write_text(json.dumps(described))
        self.check("metadata.json: the network has the inputs image, points; packages have one")
        (self.bundle / "configs/inference.json").write_text("{")
        self.check("inference.json: cannot be read as JSON (")
        (self.bundle / "configs/inference.json").write_text("[]")
        self.check("inference.json: is no mapping of keys to values")
        (self.bundle / "configs/inference.json").unlink()
        self.check("inference.json: cannot be read as JSON (")
        (self.bundle / "models/model.pt").unlink()
        self.check("spleen: has neither models/model.ts nor models/model.pt; fetch the weights of the bundle")
        done = program.millrace("model", self.bundle)
        self.assertEqual(done.code, program.ENVIRONMENT)
        self.assertIn("spleen: is a bundle of MONAI; add --task semantic", done.err)

    def test_a_path_in_a_bundle_that_does_not_exist(self):
        for self.bundle in (self.bundle / "models/modle.pt", self.bundle / "weights/model.pt"):
            self.check(f"{self.bundle}: no such file")


if __name__ == "__main__":
    program.main()
