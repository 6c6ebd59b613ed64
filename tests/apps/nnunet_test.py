"""Packages of trained models of nnU-Net v2: networks, windows and normalisation are those of the plan.

The weights are random. The formats set of tools/setup.sh has the networks of nnU-Net; without it, these tests skip.
"""

import copy
import json
import pydoc
import re
import shutil
import sys

import numpy
import program
import torch
import yaml
from PIL import Image

sys.path.append(str(program.ROOT / "models/export"))

LABELS = {"background": 0, "liver": 1, "tumour": 2}
CT = {"mean": 62.5, "std": 118.25, "percentile_00_5": -180.5, "percentile_99_5": 310.75, "min": -900, "max": 2000, "median": 60}


def architecture(name, dimensions, dropout=False):
    """The section `architecture` of a plan, as nnU-Net writes it."""
    stride, two = [1] * dimensions, [1, 2, 2][-dimensions:]
    return {
        "network_class_name": f"dynamic_network_architectures.architectures.unet.{name}",
        "arch_kwargs": {
            "n_stages": 3,
            "features_per_stage": [6, 8, 12],
            "conv_op": f"torch.nn.modules.conv.Conv{dimensions}d",
            "kernel_sizes": [[1, 3, 3][-dimensions:], [3] * dimensions, [3] * dimensions],
            "strides": [stride, two, [2] * dimensions],
            "n_conv_per_stage" if name == "PlainConvUNet" else "n_blocks_per_stage": [2, 1, 3],
            "n_conv_per_stage_decoder": [2, 1],
            "conv_bias": True,
            "norm_op": f"torch.nn.modules.instancenorm.InstanceNorm{dimensions}d",
            "norm_op_kwargs": {"eps": 1e-05, "affine": True},
            "dropout_op": f"torch.nn.modules.dropout.Dropout{dimensions}d" if dropout else None,
            "dropout_op_kwargs": {"p": 0.2} if dropout else None,
            "nonlin": "torch.nn.LeakyReLU",
            "nonlin_kwargs": {"inplace": True},
        },
        "_kw_requires_import": ["conv_op", "norm_op", "dropout_op", "nonlin"],
    }


def plan(configuration="3d_fullres", name="PlainConvUNet", patch=(8, 12, 16), scheme="CTNormalization", **changes):
    """The parts of plans.json that matter here. `changes` are of the configuration."""
    known = {
        "patch_size": list(patch),
        "spacing": [2.5, 0.8, 0.75][-len(patch) :],
        "normalization_schemes": [scheme],
        "use_mask_for_norm": [False],
        "architecture": architecture(name, len(patch)),
    }
    return {
        "dataset_name": "Dataset003_Liver",
        "plans_name": "nnUNetPlans",
        "original_median_spacing_after_transp": [2.5, 0.8, 0.75],
        "image_reader_writer": "SimpleITKIO",
        "transpose_forward": [0, 1, 2],
        "transpose_backward": [0, 1, 2],
        "foreground_intensity_properties_per_channel": {"0": CT},
        "configurations": {"base": known, configuration: {"inherits_from": "base"} | changes},
    }


def reference(made, configuration="3d_fullres", channels=1, seed=0):
    """The network of nnU-Net itself, with random weights whose outputs differ enough to give all labels."""
    options = copy.deepcopy(made["configurations"]["base"]["architecture"])
    arguments = options["arch_kwargs"]
    for key in options["_kw_requires_import"]:
        arguments[key] = arguments[key] and pydoc.locate(arguments[key])
    torch.manual_seed(seed)
    return pydoc.locate(options["network_class_name"])(input_channels=channels, num_classes=len(LABELS), deep_supervision=True, **arguments).eval()


def logits_of(net):
    """The outputs of the full resolution."""
    return lambda images: net(images)[0]


class Case(program.Case):
    def setUp(self):
        super().setUp()
        program.require_formats()
        torch.set_num_threads(1)

    def write_model(self, made, nets, configuration="3d_fullres", labels=None, channels=("CT",), **trained):
        """A folder as nnU-Net's training leaves it: plans, dataset, and a checkpoint for each net."""
        folder = self.folder / f"nnUNetTrainer__nnUNetPlans__{configuration}"
        folder.mkdir()
        dataset = {"channel_names": {str(index): name for index, name in enumerate(channels)}, "labels": labels or LABELS, "numTraining": 3, "file_ending": ".nii.gz"}
        (folder / "plans.json").write_text(json.dumps(made))
        (folder / "dataset.json").write_text(json.dumps(dataset))
        for fold, net in enumerate(nets):
            (folder / f"fold_{fold}").mkdir()
            checkpoint = {
                "network_weights": net.state_dict(),
                "optimizer_state": {"state": {}, "param_groups": [{"lr": 0.01, "momentum": 0.99}]},
                "grad_scaler_state": {"scale": 65536.0},
                "logging": {"mean_fg_dice": [numpy.float64(0.5), 0.75], "epoch_end_timestamps": [1.5]},
                "_best_ema": numpy.float64(0.75),
                "current_epoch": 1000,
                "init_args": {"plans": made, "configuration": configuration, "fold": fold, "dataset_json": dataset, "unpack_dataset": True, "device": torch.device("cuda")},
                "trainer_name": "nnUNetTrainer",
                "inference_allowed_mirroring_axes": (0, 1) if configuration == "2d" else (0, 1, 2),
            } | trained
            torch.save(checkpoint, folder / f"fold_{fold}/checkpoint_final.pth")
        return folder

    def convert(self, *words, code=program.OK):
        done = program.millrace("model", *words, "--task", "semantic")
        self.assertEqual(done.code, code, done)
        return done

    def values(self, package, item, recipe, *settings):
        out = self.folder / "out"
        settings = (f"semantic.model={package}", "semantic.values=logits", "tiles.overlap=0.5", *settings)
        self.run_ok(program.ROOT / f"configs/{recipe}.yaml", "--input", item, *(word for setting in settings for word in ("--set", setting)),
                    "--format", "npy", "--output", out)
        return numpy.load(out / f"values/{item.name}.npy")

    def volume(self, zooms=(0.75, 0.8, 2.5)):
        """A volume on air, and its voxels [z, y, x]."""
        import nibabel

        voxels = numpy.zeros((21, 19, 13), numpy.float32)
        voxels[3:-2, 2:-4, 1:-3] = numpy.random.default_rng(1).normal(60, 200, (16, 13, 9))
        path = self.folder / "volume.nii.gz"
        nibabel.save(nibabel.Nifti1Image(voxels, numpy.diag([*zooms, 1])), path)
        return path, voxels.transpose(2, 1, 0).copy()

    def compare(self, found, inputs, roi, *nets):
        """Compares values [..., label] with the mean of the networks in MONAI's windows."""
        from monai.inferers import sliding_window_inference

        with torch.inference_mode():
            members = [sliding_window_inference(torch.from_numpy(inputs)[None], roi, 2, net, overlap=0.5, mode="gaussian")[0] for net in nets]
        expected = numpy.moveaxis((sum(members) / len(members)).numpy(), 0, -1)
        self.assertGreater(expected.std(), 0.05)
        self.assertEqual(found.shape, expected.shape)
        self.assertLess(abs(found - expected).max(), 1e-4 * expected.std())
        self.assertEqual(len(numpy.unique(expected.argmax(-1))), len(LABELS))


class Networks(Case):
    def test_names_of_tensors_and_outputs_are_those_of_nnunet(self):
        import nnunet
        import nnunet_networks

        for dimensions in (2, 3):
            for name in ("PlainConvUNet", "ResidualEncoderUNet"):
                for dropout in (False, True):
                    with self.subTest(name, dimensions=dimensions, dropout=dropout):
                        made = plan(name=name, patch=(8, 12, 16)[-dimensions:])
                        made["configurations"]["base"]["architecture"] = architecture(name, dimensions, dropout)
                        original = reference(made, seed=dimensions)
                        own = nnunet.network_of("plans.json", made["configurations"]["base"], 1, len(LABELS)).eval()
                        self.assertEqual(own.state_dict().keys(), original.state_dict().keys())
                        own.load_state_dict(original.state_dict(), strict=True)
                        images = torch.randn(2, 1, *(16, 24, 16)[-dimensions:])
                        with torch.inference_mode():
                            expected = logits_of(original)(images)
                            self.assertTrue(torch.equal(own(images), expected))
                            slim = torch.jit.script(nnunet_networks.slim(own))
                            self.assertLess((slim(images) - expected).abs().max().item(), 1e-5)
                        self.assertLess(len(slim.state_dict()), len(original.state_dict()) / 2)


class Runs(Case):
    def test_folds_of_ct_are_an_ensemble(self):
        made = plan()
        nets = [reference(made, seed=seed) for seed in (1, 2)]
        folder = self.write_model(made, nets)
        done = self.convert(folder)
        package = folder.with_suffix(".pkg")
        written = yaml.safe_load((package / "model.yaml").read_text())
        self.assertEqual(written["input"], {"width": 16, "height": 12, "depth": 8, "axes": "zyx", "spacing": [0.75, 0.8, 2.5], "scaled": "before_resampling", "clip": [-180.5, 310.75], "scale": 1, "mean": [62.5], "std": [118.25]})
        self.assertEqual((written["classes"], written["output"]), (list(LABELS), {"channels": 3, "activation": "softmax"}))
        self.assertEqual((written["architecture"], written["original"]), ("2 x PlainConvUNet, mean of logits", f"nnU-Net v2 {folder.name}"))
        self.assertIn("\nnote: nnU-Net resamples volumes with splines of third order, and probabilities back. Millrace resamples linearly, and labels back\n", done.out)
        self.assertIn("\nnote: nnU-Net also takes the mean over mirrored windows: add --set tiles.tta=x,y,z\n", done.out)
        self.assertIn(f"configs/volume.yaml --input PICTURES --set semantic.model={package} ", done.out)
        self.assertNotIn("trainer", done.out)
        volume, voxels = self.volume()
        inputs = (voxels.clip(-180.5, 310.75) - 62.5) / 118.25
        self.compare(self.values(package, volume, "volume"), inputs[None], (8, 12, 16), *map(logits_of, nets))

    def test_one_fold_of_a_residual_network_with_the_zscore_of_the_cropped_volume(self):
        made = plan(name="ResidualEncoderUNet", scheme="ZScoreNormalization")
        net = reference(made, seed=4)
        folder = self.write_model(made, [net], trainer_name="nnUNetTrainerDA5")
        done = self.convert(folder / "fold_0/checkpoint_final.pth")
        self.assertIn("nnU-Net first cuts away the outer slices that are zero", done.out)
        self.assertIn("the checkpoint is of the trainer nnUNetTrainerDA5, whose network may differ from the plan", done.out)
        volume, voxels = self.volume()
        box = voxels[1:-3, 2:-4, 3:-2].astype(numpy.float64)
        self.assertTrue(voxels.any() and not voxels[0].any() and not voxels[:, :2].any())
        inputs = ((voxels - box.mean()) / box.std()).astype(numpy.float32)
        self.compare(self.values(folder / "fold_0/checkpoint_final.pkg", volume, "volume"), inputs[None], (8, 12, 16), logits_of(net))

    def test_volumes_are_normalised_before_they_are_resampled(self):
        for number, (scheme, mask) in enumerate((("CTNormalization", False), ("ZScoreNormalization", False), ("ZScoreNormalization", True))):
            with self.subTest(scheme, mask=mask):
                made = plan(scheme=scheme, use_mask_for_norm=[mask])
                net = reference(made, seed=(10, 11, 6)[number])
                folder = self.write_model(made, [net])
                self.convert(folder)
                volume, voxels = self.volume((1.1, 0.8, 4))
                values = voxels.astype(numpy.float64)
                if scheme == "CTNormalization":
                    normalised = (values.clip(-180.5, 310.75) - 62.5) / 118.25
                elif mask:
                    normalised = numpy.where(values == 0, 0, (values - values[values != 0].mean()) / values[values != 0].std())
                else:
                    box = values[1:-3, 2:-4, 3:-2]
                    normalised = (values - box.mean()) / box.std()
                # 13 x 4 / 2.5, 19, and 21 x 1.1 / 0.75 voxels
                inputs = torch.nn.functional.interpolate(torch.from_numpy(normalised)[None, None], size=(21, 19, 31), mode="trilinear", align_corners=False)[0].float().numpy()
                self.compare(self.values(folder.with_suffix(".pkg"), volume, "volume"), inputs, (8, 12, 16), logits_of(net))
                for made_by_test in (folder, folder.with_suffix(".pkg"), self.folder / "out"):
                    shutil.rmtree(made_by_test)
                volume.unlink()

    def test_a_plan_whose_reader_turns_volumes_to_ras(self):
        import nibabel

        made = plan() | {"image_reader_writer": "NibabelIOWithReorient"}
        net = reference(made, seed=10)
        folder = self.write_model(made, [net])
        self.convert(folder)
        volume, voxels = self.volume()
        nibabel.save(nibabel.Nifti1Image(voxels.transpose(2, 1, 0), numpy.diag([-0.75, -0.8, 2.5, 1])), volume)  # LPS
        inputs = (voxels[:, ::-1, ::-1].clip(-180.5, 310.75) - 62.5) / 118.25
        self.compare(self.values(folder.with_suffix(".pkg"), volume, "volume")[:, ::-1, ::-1], inputs[None].copy(), (8, 12, 16), logits_of(net))

    def test_a_network_of_slices(self):
        made = plan("2d", patch=(16, 12), scheme="ZScoreNormalization", use_mask_for_norm=[True])
        net = reference(made, seed=6)
        folder = self.write_model(made, [net], "2d")
        done = self.convert(folder)
        self.assertIn("Those of the package are of all values that are not zero", done.out)
        self.assertIn("\nnote: nnU-Net also takes the mean over mirrored windows: add --set tiles.tta=x,y\n", done.out)
        written = yaml.safe_load((folder.with_suffix(".pkg") / "model.yaml").read_text())
        self.assertEqual(written["input"], {"width": 12, "height": 16, "depth": 1, "axes": "zyx", "spacing": [0.75, 0.8, 0], "scaled": "before_resampling", "zscore": "nonzero"})
        volume, voxels = self.volume()
        inside = voxels[voxels != 0].astype(numpy.float64)
        inputs = numpy.where(voxels == 0, 0, (voxels - inside.mean()) / inside.std()).astype(numpy.float32)
        slices = lambda images: logits_of(net)(images.squeeze(2)).unsqueeze(2)  # noqa: E731
        self.compare(self.values(folder.with_suffix(".pkg"), volume, "volume"), inputs[None], (1, 16, 12), slices)

    def test_a_network_of_volumes_with_two_channels(self):
        import nibabel

        made = plan(scheme="ZScoreNormalization", normalization_schemes=["ZScoreNormalization"] * 2, use_mask_for_norm=[False, False])
        net = reference(made, channels=2, seed=8)
        folder = self.write_model(made, [net], channels=("T1", "T2"))
        done = self.convert(folder)
        self.assertIn("Millrace takes them from one NIfTI with 2 volumes, in the same order", done.out)
        written = yaml.safe_load((folder.with_suffix(".pkg") / "model.yaml").read_text())
        self.assertEqual(written["input"], {"width": 16, "height": 12, "depth": 8, "axes": "zyx", "spacing": [0.75, 0.8, 2.5], "scaled": "before_resampling", "channels": 2, "zscore": "nonzero_box", "channel_wise": True})
        voxels = numpy.zeros((21, 19, 13, 2), numpy.float32)
        voxels[3:-2, 2:-4, 1:-3] = numpy.random.default_rng(2).normal((60, 900), (200, 50), (16, 13, 9, 2))
        volume = self.folder / "two.nii.gz"
        nibabel.save(nibabel.Nifti1Image(voxels, numpy.diag([0.75, 0.8, 2.5, 1])), volume)
        box = voxels[3:-2, 2:-4, 1:-3].astype(numpy.float64)
        inputs = ((voxels - box.mean((0, 1, 2))) / box.std((0, 1, 2))).astype(numpy.float32).transpose(3, 2, 1, 0).copy()
        self.compare(self.values(folder.with_suffix(".pkg"), volume, "volume"), inputs, (8, 12, 16), logits_of(net))

    def test_two_channels_of_ct_with_ranges_of_their_own(self):
        import nibabel

        made = plan(normalization_schemes=["CTNormalization"] * 2, use_mask_for_norm=[False, False])
        made["foreground_intensity_properties_per_channel"]["1"] = CT | {"percentile_00_5": 2.5, "percentile_99_5": 40, "mean": 11.5, "std": 6.25}
        net = reference(made, channels=2, seed=8)
        folder = self.write_model(made, [net], channels=("CT", "PET"))
        self.convert(folder)
        written = yaml.safe_load((folder.with_suffix(".pkg") / "model.yaml").read_text())
        self.assertEqual([channel["clip"] for channel in written["input"]["channels"]], [[-180.5, 310.75], [2.5, 40]])
        voxels = numpy.random.default_rng(2).normal((60, 15), (200, 20), (21, 19, 13, 2)).astype(numpy.float32)
        volume = self.folder / "two.nii.gz"
        nibabel.save(nibabel.Nifti1Image(voxels, numpy.diag([0.75, 0.8, 2.5, 1])), volume)
        inputs = ((voxels.clip([-180.5, 2.5], [310.75, 40]) - [62.5, 11.5]) / [118.25, 6.25]).astype(numpy.float32).transpose(3, 2, 1, 0).copy()
        self.compare(self.values(folder.with_suffix(".pkg"), volume, "volume"), inputs, (8, 12, 16), logits_of(net))

    def test_channels_with_a_scheme_of_their_own(self):
        import nibabel

        schemes = ["CTNormalization", "ZScoreNormalization", "ZScoreNormalization", "NoNormalization"]
        made = plan(normalization_schemes=schemes, use_mask_for_norm=[False, False, True, False])
        net = reference(made, channels=4, seed=8)
        folder = self.write_model(made, [net], channels=("CT", "T1", "T2", "probability"))
        done = self.convert(folder)
        self.assertIn("Those of the package are of all values that are not zero", done.out)
        written = yaml.safe_load((folder.with_suffix(".pkg") / "model.yaml").read_text())
        ct = {"clip": [-180.5, 310.75], "scale": 1, "mean": 62.5, "std": 118.25}
        self.assertEqual(written["input"], {"width": 16, "height": 12, "depth": 8, "axes": "zyx", "spacing": [0.75, 0.8, 2.5], "scaled": "before_resampling",
                                            "channels": [ct, {"zscore": "nonzero_box"}, {"zscore": "nonzero"}, {"scale": 1, "mean": 0, "std": 1}]})  # fmt: skip
        voxels = numpy.zeros((21, 19, 13, 4), numpy.float32)
        voxels[3:-2, 2:-4, 1:-3] = numpy.random.default_rng(2).normal((60, 900, 300, 0.5), (400, 50, 90, 0.2), (16, 13, 9, 4))
        voxels[1, 8, 6, 0] = -700  # nnU-Net's crop keeps this voxel, where the other channels are zero
        volume = self.folder / "four.nii.gz"
        nibabel.save(nibabel.Nifti1Image(voxels, numpy.diag([0.75, 0.8, 2.5, 1])), volume)
        values = voxels.astype(numpy.float64)
        box = values[1:-2, 2:-4, 1:-3, 1]
        inside = values[..., 2][values[..., 2] != 0]
        inputs = numpy.stack([
            (values[..., 0].clip(-180.5, 310.75) - 62.5) / 118.25,
            (values[..., 1] - box.mean()) / box.std(),
            numpy.where(values[..., 2] == 0, 0, (values[..., 2] - inside.mean()) / inside.std()),
            values[..., 3],
        ]).astype(numpy.float32).transpose(0, 3, 2, 1).copy()  # fmt: skip
        self.compare(self.values(folder.with_suffix(".pkg"), volume, "volume"), inputs, (8, 12, 16), logits_of(net))

    def test_a_network_of_pictures(self):
        made = plan("2d", patch=(24, 16), scheme="RGBTo01Normalization") | {"image_reader_writer": "NaturalImage2DIO"}
        base = made["configurations"]["base"]
        base["normalization_schemes"], base["use_mask_for_norm"] = base["normalization_schemes"] * 3, [False] * 3
        net = reference(made, channels=3, seed=7)
        folder = self.write_model(made, [net], "2d", channels=("R", "G", "B"))
        done = self.convert(folder)
        self.assertNotIn("resample", done.out)
        pixels = numpy.random.default_rng(4).integers(0, 256, (40, 30, 3)).astype(numpy.uint8)
        Image.fromarray(pixels).save(self.folder / "a.png")
        inputs = pixels.transpose(2, 0, 1).astype(numpy.float32) / 255
        self.compare(self.values(folder.with_suffix(".pkg"), self.folder / "a.png", "tiled"), inputs, (24, 16), logits_of(net))
        self.convert(folder, "--mpp", 0.5, "--out", self.folder / "asked")  # no plan has it
        self.assertIn("  mpp: 0.5\n", (self.folder / "asked" / folder.with_suffix(".pkg").name / "model.yaml").read_text())

    def test_plans_of_earlier_versions(self):
        made = plan()
        base = made["configurations"]["base"]
        base["architecture"]["arch_kwargs"]["features_per_stage"] = [6, 12, 20]
        net = reference(made)
        self.convert(self.write_model(made, [net]), "--out", self.folder / "new")
        shutil.rmtree(self.folder / "nnUNetTrainer__nnUNetPlans__3d_fullres")
        arguments = base.pop("architecture")["arch_kwargs"]
        base |= {"UNet_class_name": "PlainConvUNet", "UNet_base_num_features": 6, "unet_max_num_features": 20, "num_pool_per_axis": [1, 2, 2],
                 "n_conv_per_stage_encoder": arguments["n_conv_per_stage"], "n_conv_per_stage_decoder": arguments["n_conv_per_stage_decoder"],
                 "pool_op_kernel_sizes": arguments["strides"], "conv_kernel_sizes": arguments["kernel_sizes"]}  # fmt: skip
        self.convert(self.write_model(made, [net]), "--out", self.folder / "old")
        new, old = (program.tree(self.folder / name) for name in ("new", "old"))
        self.assertEqual(len(new), 2)
        self.assertEqual(new, old)


class Refusals(Case):
    def check(self, says, change=None, *words, trained=None, **options):
        """Converts a model with a changed plan or checkpoint."""
        made = plan()
        net = reference(made)
        if change:
            change(made)
        folder = self.write_model(made, [net], **options, **(trained or {}))
        done = self.convert(folder, *words, code=program.ENVIRONMENT)
        self.assertEqual(len(done.err.splitlines()), 1, done)
        self.assertRegex(done.err, re.escape(says))
        self.assertEqual(list(self.folder.rglob("*.pkg")) + list(self.folder.rglob("*.part")), [])
        folder.rename(self.folder / f"old-{len(list(self.folder.iterdir()))}")

    def test_what_a_package_cannot_express(self):
        def base(**changes):
            return lambda made: made["configurations"]["base"].update(changes)

        def network(**changes):
            return lambda made: made["configurations"]["base"]["architecture"]["arch_kwargs"].update(changes)

        self.check("'3d_fullres' is the second stage of a cascade, and a package has one stage", base(previous_stage="3d_lowres"))
        self.check("plans.json: its network takes the axes in the order [1, 0, 2]", lambda made: made.update(transpose_forward=[1, 0, 2]))
        self.check("plans.json: normalises with OwnNormalization, which packages cannot do", base(normalization_schemes=["OwnNormalization"]))
        self.check("the network has the architecture ResidualUNet; PlainConvUNet, ResidualEncoderUNet are possible", base(architecture=architecture("ResidualUNet", 3)))
        self.check("the network has the activation torch.nn.GELU; LeakyReLU, ReLU are possible", network(nonlin="torch.nn.GELU"))
        self.check("PlainConvUNet has nonlin_first, which packages cannot have", network(nonlin_first=True))
        self.check("n_conv_per_stage has 2 values for 3 stages", network(n_conv_per_stage=[2, 1]))
        self.check("dataset.json: has regions, which overlap", labels={"background": 0, "whole": [1, 2], "core": [2]})
        self.check("dataset.json: has the labels [0, 2, 3]; expected 0 to 2", labels={"background": 0, "a": 2, "b": 3})

    def test_files_that_do_not_fit(self):
        self.check("has tensors of other shapes", lambda made: made["configurations"]["base"]["architecture"]["arch_kwargs"].update(features_per_stage=[6, 8, 16]))
        self.check("lacks tensors", lambda made: made["configurations"]["base"]["architecture"]["arch_kwargs"].update(n_conv_per_stage=[2, 2, 3]))
        self.check("plans.json: it, or dataset.json, is not as nnU-Net v2 writes it (KeyError: 'transpose_forward')", lambda made: made.pop("transpose_forward"))
        self.check("plans.json: has no configuration '3d_other'", trained={"init_args": {"configuration": "3d_other"}})
        self.check("is a checkpoint, and not one of nnU-Net v2; --task semantic takes TorchScript", trained={"network_weights": 3})
        self.check("--roi comes from the plan of nnU-Net; leave it out", None, "--roi", 8)

    def test_folders_without_a_model(self):
        (self.folder / "empty").mkdir()
        done = program.millrace("model", self.folder / "empty")
        self.assertIn("empty: is a folder; name the file with the weights", done.err)
        self.assertIn("empty: is a folder without fold_*/checkpoint_final.pth", self.convert(self.folder / "empty", code=program.ENVIRONMENT).err)
        made = plan()
        folder = self.write_model(made, [reference(made)])
        done = program.millrace("model", folder)
        self.assertIn("3d_fullres: is a trained model of nnU-Net; add --task semantic", done.err)
        shutil.copytree(folder, self.folder / "other")
        done = self.convert(folder / "fold_0/checkpoint_final.pth", self.folder / "other/fold_0/checkpoint_final.pth", code=program.ENVIRONMENT)
        self.assertIn("belongs to another model than", done.err)
        (folder / "plans.json").write_text("{")
        self.assertIn("plans.json: cannot be read as JSON (", self.convert(folder, code=program.ENVIRONMENT).err)
        (folder / "plans.json").unlink()
        self.assertIn("plans.json: cannot be read as JSON (", self.convert(folder, code=program.ENVIRONMENT).err)


if __name__ == "__main__":
    program.main()
