"""Transforms of bundles of MONAI as options of the exporter, compared with MONAI's own transforms.

The formats set of tools/setup.sh has MONAI; without it, these tests skip.
"""

import json

import monai_test  # puts the exporters on the path
import numpy
import program
import torch

import monai_config
import monai_transforms
import semantic


def scaled(options, values):
    """What docs/packages.md says of these options: values [channel, ...] as the input of a model."""
    values = values.astype(numpy.float64)
    if options.get("channel"):
        channels = list_of(options)
        return numpy.stack([scaled(keys | {"channel_wise": True}, channel[None])[0] for keys, channel in zip(channels, values, strict=True)])
    if options.get("clip"):
        values = values.clip(*options["clip"])
    if "scale" in options:
        by_channel = (numpy.reshape(options[name], (-1, *[1] * (values.ndim - 1))) for name in ("mean", "std"))
        mean, std = by_channel
        return (values * options["scale"] - mean) / std
    if not options["channel_wise"]:
        return statistics(options, values)
    return numpy.stack([statistics(options, channel) for channel in values])


def list_of(options):
    """The keys of each channel."""
    return [semantic.channel_of(index, words) for index, words in enumerate(options["channel"])]


def statistics(options, values):
    if "percentiles" in options:
        low, high = numpy.percentile(values, options["percentiles"])
        found = (values - low) / (high - low)
        return found.clip(0, 1) if options.get("clip_to_percentiles") else found
    counted = values if options["zscore"] == "all" else values[values != 0]
    if options["zscore"] == "nonzero_box":
        counted = values[tuple(slice(axis.min(), axis.max() + 1) for axis in values.nonzero())]
    found = (values - counted.mean()) / counted.std()
    return numpy.where(values == 0, 0, found) if options["zscore"] == "nonzero" else found


class Transforms(monai_test.Case):
    def config_of(self, described):
        """The configuration of a bundle that is no more than this."""
        (self.folder / "configs").mkdir(exist_ok=True)
        (self.folder / "configs/inference.json").write_text(json.dumps(described))
        return monai_config.Config(self.folder, False)

    def test_chains_of_transforms_are_one_scaling(self):
        from monai.bundle import ConfigParser

        def scale(**options):
            return {"_target_": "ScaleIntensityRanged", "keys": "image"} | options

        def other(name, **options):
            return {"_target_": name, "keys": ["image", "label"], "allow_missing_keys": True} | options

        imagenet = other("NormalizeIntensityd", subtrahend=[0.4, 0.5, 0.6], divisor=[0.2, 0.25, 0.3], channel_wise=True)
        percentiles = {"lower": 2, "upper": 97.5, "b_min": 0, "b_max": 1}
        values = numpy.random.default_rng(3).integers(1, 256, (3, 9, 8, 7)).astype(numpy.float32)
        values[:, :2], values[:, :, -3:], values[:, 4, 2, 2], values[:, 5, 2, 2] = 0, 0, 0, -90
        for wanted, transforms in (
            ({"clip": None}, [scale(a_min=0, a_max=255, b_min=0, b_max=1), imagenet]),
            ({"clip": [20, 200]}, [scale(a_min=20, a_max=200, b_min=-1, b_max=3, clip=True)]),
            ({"clip": [45, 120]}, [scale(a_min=20, a_max=120, b_min=0, b_max=1, clip=True), scale(a_min=0.25, a_max=1.5, b_min=-2, b_max=2, clip=True)]),
            ({"channel": [{"clip": [low, low + 30], "scale": 1, "mean": low, "std": 60} for low in (30, 40, 50)]}, [other("NormalizeIntensityd", subtrahend=[30, 40, 50], divisor=[60, 60, 60], channel_wise=True), scale(a_min=0, a_max=0.5, b_min=0, b_max=0.5, clip=True)]),
            ({"channel": [{"clip": [20, high], "zscore": "all"} for high in (60, 70, 80)]}, [scale(a_min=20, a_max=200, b_min=20, b_max=200, clip=True), other("NormalizeIntensityd", subtrahend=[30, 40, 50], divisor=[60, 60, 60], channel_wise=True), scale(a_min=-1, a_max=0.5, b_min=-1, b_max=0.5, clip=True), other("NormalizeIntensityd", channel_wise=True)]),
            ({"clip": None, "mean": [30], "std": [60]}, [scale(a_min=30, a_max=90)]),
            ({"mean": [0], "std": [2]}, [other("ScaleIntensityd", minv=None, maxv=None, factor=-0.5)]),
            ({"zscore": "all", "channel_wise": None, "clip": [20, 200]}, [scale(a_min=20, a_max=200, b_min=0, b_max=1, clip=True), other("NormalizeIntensityd")]),
            ({"zscore": "all", "channel_wise": True}, [imagenet, other("NormalizeIntensityd", channel_wise=True)]),
            ({"zscore": "nonzero", "channel_wise": None}, [other("NormalizeIntensityd", nonzero=True)]),
            ({"zscore": "nonzero_box", "channel_wise": True}, [other("CropForegroundd", source_key="image", allow_smaller=True), other("NormalizeIntensityd", channel_wise=True)]),
            ({"zscore": "nonzero", "channel_wise": True}, [other("CropForegroundDict", source_key="image", allow_smaller=True, margin=0), other("NormalizeIntensityd", nonzero=True, channel_wise=True)]),
            ({"percentiles": [0, 100], "channel_wise": True}, [other("ScaleIntensityd", minv=0.0, channel_wise=True)]),
            ({"percentiles": [2, 97.5], "clip_to_percentiles": True}, [scale(a_min=0, a_max=255, b_min=0, b_max=1), other("ScaleIntensityRangePercentilesd", **percentiles, clip=True)]),
            ({"percentiles": [2, 97.5], "clip_to_percentiles": None}, [other("ScaleIntensityRangePercentilesd", **percentiles, channel_wise=True)]),
        ):
            with self.subTest(transforms):
                described = {"preprocessing": {"_target_": "Compose", "transforms": transforms}}
                before = monai_transforms.Before(self.config_of(described), "image", 3, True)
                options = before.options
                self.assertEqual({name: list_of(options) if name == "channel" else options.get(name) for name in wanted}, wanted)
                expected = ConfigParser(described).get_parsed_content("preprocessing")({"image": torch.from_numpy(values.copy())})["image"].numpy()
                found = scaled(options, values)
                if expected.shape != found.shape:
                    found = found[:, 2:, :, :][:, :, :-3]
                self.assertLess(abs(found - expected).max(), 2e-5)
                cropped = any("CropForeground" in one["_target_"] for one in transforms)
                self.assertEqual(any("MONAI takes the mean and deviation in the box of values above 0." in note for note in before.notes), cropped)

    def test_notes_say_what_a_bundle_writes_without_classes(self):
        def activations(**options):
            return {"_target_": "Activationsd", "keys": "pred"} | options

        def says(result, labels, values):
            return [f"the bundle makes no classes (AsDiscrete), so MONAI writes {result}. A run labels {labels}. --set semantic.values={values} --format npy also writes the values"]

        largest = "the class with the largest value"
        discrete = {"_target_": "AsDiscreted", "keys": "pred"}
        save = {"_target_": "SaveImaged", "keys": "pred"}
        for channels, transforms, activation, threshold, notes in (
            (3, None, None, None, says("what the network returns", largest, "logits")),
            (3, [save], None, None, says("what the network returns", largest, "logits")),
            (1, [save], None, None, says("what the network returns", "places where the sigmoid of the value is above 0.5", "logits")),
            (3, [activations(softmax=True), save], "softmax", None, says("probabilities (softmax)", largest, "probabilities")),
            (3, [activations(sigmoid=True), save], "sigmoid", None, says("probabilities (sigmoid)", largest, "probabilities")),
            (1, [activations(sigmoid=True)], "sigmoid", None, says("probabilities (sigmoid)", "places where the probability is above 0.5", "probabilities")),
            (1, [activations(sigmoid=True), discrete | {"threshold": 0.4}, save], "sigmoid", 0.4, []),
            (3, [activations(sigmoid=True), discrete | {"argmax": True}], "sigmoid", None, []),
            (3, [discrete | {"argmax": True}], "softmax", None, []),
            (1, [discrete | {"threshold": 2}], "none", 2, []),
        ):
            with self.subTest(transforms, channels=channels):
                described = {} if transforms is None else {"postprocessing": {"_target_": "Compose", "transforms": transforms}}
                found = monai_transforms.after(self.config_of(described), "pred", channels)
                self.assertEqual(found, ({"activation": activation, "threshold": threshold}, notes))


if __name__ == "__main__":
    program.main()
