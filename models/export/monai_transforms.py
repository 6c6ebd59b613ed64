"""What the transforms of a MONAI bundle are in a package: options of the exporter, and notes.

A transform that changes values or places, and that a package cannot express, is refused by its name.
"""

import re

import semantic

# Transforms before the network that change neither values nor places.
HARMLESS = ("EnsureChannelFirst", "AddChannel", "AsChannelFirst", "EnsureType", "CastToType", "ToTensor", "ToDevice", "Identity", "DeleteItems", "SelectItems", "FlattenSubKeys", "DataStats")
# Those behind the network that only bring the result back to the file, and write it.
BACK = ("Invert", "SaveImage", "EnsureType", "CastToType", "ToTensor", "ToDevice", "Identity", "DeleteItems", "SelectItems", "CopyItems", "EnsureChannelFirst")
# Arguments that change nothing here. Where a transform reads one of them, it comes first.
IGNORED = ("keys", "allow_missing_keys", "dtype", "lazy", "ensure_same_shape", "align_corners", "padding_mode", "recompute_affine", "scale_extent", "labels", "track_meta", "_target_", "_desc_", "_requires_", "_disabled_")
MODULES = ("monai.transforms",)
CREATED = ("name", "names", "output_key")  # arguments that name the items that a transform makes of others


class Transform:
    """One transform at a path of the configuration. `key` is the name of the item that it must change."""

    def __init__(self, config, path, key):
        self.config, self.path, self.key = config, path, key
        self.raw = config.follow(path)[1]
        if not isinstance(self.raw, dict) or not isinstance(self.raw.get("_target_"), str):
            config.refuse(path, "is no transform with a _target_; a bundle lists the transforms of MONAI")
        self.target = self.raw["_target_"]
        module, _, name = self.target.rpartition(".")
        self.name = name if name == "CropForeground" else re.sub("(Dict|d|D)$", "", name)
        self.own = bool(module) and not module.startswith(MODULES)  # code that is not MONAI's
        self.keys = self.items("keys") if "keys" in self.raw else [key]
        self.index = self.keys.index(key) if key in self.keys else None  # None: for other items
        self.creates = self.index is None and any(key in self.items(name) for name in CREATED if name in self.raw)
        matters = "_disabled_" in self.raw and (self.creates or self.name not in (*HARMLESS, *BACK))
        self.disabled = matters and str(config.value([*path, "_disabled_"])).strip().lower() == "true"

    def items(self, name):
        """The names of items in this argument."""
        found = self.config.value([*self.path, name])
        return [found] if isinstance(found, str) else list(found or ())

    def refuse(self, what):
        self.config.refuse(self.path, f"({self.target}) {what}")

    def read(self, *names, for_each_key=()):
        """The values of these arguments, None for those that are absent. Refuses others that change something."""
        if others := sorted(name for name, value in self.raw.items() if name not in names and name not in IGNORED and value not in (None, False, [], "")):
            self.refuse(f"has {', '.join(others)}, which packages cannot have")
        values = [self.config.value([*self.path, name]) if name in self.raw else None for name in names]
        return [value[self.index] if name in for_each_key and isinstance(value, list) and len(value) == len(self.keys) else value for name, value in zip(names, values)]


def transforms_of(config, name, key):
    """The transforms of the Compose `name` that change the item `key`. Refuses a Compose that works on other items only."""
    enabled = [transform for transform in all_of(config, [name], key) if not transform.disabled]
    for transform in enabled:
        if transform.creates:
            transform.refuse(f"makes the item {key!r} of others, which packages cannot do; the transforms must have {key!r} from the first one")
    found = [transform for transform in enabled if transform.index is not None]
    if enabled and not found:
        others = ", ".join(repr(other) for other in dict.fromkeys(item for transform in enabled for item in transform.keys))
        config.refuse([name], f"has no transform with the key {key!r} of metadata.json, only with {others}; correct the key in one of the two files")
    return found


def all_of(config, path, key):
    """The transforms of a Compose, and of those inside."""
    at, value = config.follow(path)
    if isinstance(value, dict) and str(value.get("_target_")).split(".")[-1] == "Compose":
        yield from all_of(config, [*at, "transforms"], key)
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from all_of(config, [*at, index], key)
    elif isinstance(value, dict):
        yield Transform(config, at, key)
    else:
        config.refuse(path, "is neither a list of transforms nor a Compose")


class Scaling:
    """How values become the input, over several transforms: (v - mean) / std, after a clip, or statistics of the item.

    `clip` has the lowest and the highest value of each channel, in the unit of the file, or is None.
    """

    def __init__(self, channels):
        self.mean, self.std, self.clip, self.statistics, self.channel_wise = [0.0] * channels, [1.0] * channels, None, None, None
        self.cropped = None  # the transform that cut the item to its foreground
        self.limited_before = False  # values were limited before it

    def check(self, transform):
        if self.statistics:
            transform.refuse("changes values behind a scaling by statistics, which packages cannot do")

    def normalise(self, transform, means, stds):
        """A further (v - mean) / std for each channel."""
        self.check(transform)
        if not all(std > 0 for std in stds):
            transform.refuse("turns large values into small ones, which packages cannot do")
        self.mean = [own + mean * by for own, by, mean in zip(self.mean, self.std, means)]
        self.std = [by * std for by, std in zip(self.std, stds)]

    def limit(self, transform, low, high):
        """Limits to a range of the values now."""
        ranges = [(low * std + mean, high * std + mean) for mean, std in zip(self.mean, self.std)]
        self.clip = [(max(low, lowest), min(high, highest)) for (low, high), (lowest, highest) in zip(ranges, self.clip or ranges)]
        if not all(low < high for low, high in self.clip):
            transform.refuse("limits values to an empty range, since a transform before it limits them too; correct one of the two")

    def same(self):
        return len(set(self.mean)) == len(set(self.std)) == 1

    def measure(self, transform, statistics, channel_wise):
        """Scales by statistics of the item. An earlier mean and deviation do not change the result."""
        self.check(transform)
        if not (channel_wise or self.same() and len(set(self.clip or [()])) == 1):
            transform.refuse("takes statistics of channels that were scaled differently, which packages cannot do")
        if self.clip and "percentiles" in statistics:
            transform.refuse("takes percentiles of values that were limited before, which packages cannot do")
        self.statistics, self.channel_wise = statistics, True if channel_wise and len(self.std) > 1 else None

    def plain(self):
        return self.same() and (self.mean[0], self.std[0]) == (0, 1)

    def options(self):
        clips = [{"clip": list(bounds)} for bounds in self.clip] if self.clip else [{}] * len(self.std)
        own = [self.statistics or {"scale": 1, "mean": mean, "std": std} for mean, std in zip(self.mean, self.std)]
        options = semantic.options_of([clip | keys for clip, keys in zip(clips, own)])
        return options if "channel" in options else options | {"channel_wise": self.channel_wise}


def scale_range(transform, scaling):
    low, high, to_low, to_high, clip = transform.read("a_min", "a_max", "b_min", "b_max", "clip")
    if (to_low is None) != (to_high is None):
        transform.refuse("has one of b_min and b_max; packages need both or none")
    if to_low is None and clip:
        transform.refuse("has clip without b_min and b_max, and MONAI cannot do that")
    to_low, to_high = (0, 1) if to_low is None else (to_low, to_high)
    if not (low < high and to_low < to_high):
        transform.refuse(f"scales {low} to {high} into {to_low} to {to_high}; packages need ranges whose first number is the lower one")
    std = (high - low) / (to_high - to_low)
    scaling.normalise(transform, [low - to_low * std] * len(scaling.std), [std] * len(scaling.std))
    if clip:
        scaling.limit(transform, to_low, to_high)


def normalise(transform, scaling):
    subtrahend, divisor, nonzero, channel_wise = transform.read("subtrahend", "divisor", "nonzero", "channel_wise")
    count = len(scaling.std)
    if subtrahend is not None and divisor is not None:
        subtrahend, divisor = ([value] * count if isinstance(value, (int, float)) else value for value in (subtrahend, divisor))
        if nonzero or len(subtrahend) != count or len(divisor) != count:
            transform.refuse(f"has nonzero, or other counts of numbers than {count} channels, which packages cannot have")
        scaling.normalise(transform, subtrahend, [value or 1 for value in divisor])
        return
    if subtrahend is not None or divisor is not None:
        transform.refuse("has one of subtrahend and divisor; packages need both or none")
    if nonzero and not scaling.plain():
        transform.refuse("takes values that are not zero behind a scaling, which packages cannot do")
    cropped = scaling.cropped
    box = cropped is not None and not nonzero
    names = () if cropped is None else ("select_fn", "channel_indices", "margin", "k_divisible") if box else ("select_fn", "channel_indices")
    if any(cropped.raw.get(name) for name in names) or box and not scaling.plain():
        transform.refuse("takes statistics of a volume that was cut with options or after a scaling, which packages cannot do")
    if cropped is not None and "source_key" in cropped.raw and cropped.items("source_key") != [cropped.key]:
        transform.refuse(f"takes statistics of a volume that was cut to the foreground of {cropped.items('source_key')[0]!r}, which packages cannot do")
    # The box of a package is that of the values in the file.
    if box and scaling.limited_before:
        transform.refuse("takes statistics of a volume that was cut after its values were limited, which packages cannot do")
    if nonzero and cropped is not None and any(low > 0 or high < 0 for low, high in scaling.clip or ()):
        transform.refuse("takes values that are not zero of a volume that was cut and limited to a range without zero, which packages cannot do")
    scaling.measure(transform, {"zscore": "nonzero" if nonzero else "nonzero_box" if box else "all"}, channel_wise)


def scale(transform, scaling):
    low, high, factor, channel_wise = transform.read("minv", "maxv", "factor", "channel_wise")
    if {"minv", "maxv"} <= transform.raw.keys() and low is None and high is None:
        scaling.normalise(transform, [0] * len(scaling.std), [1 / (1 + (factor or 0))] * len(scaling.std))
        return
    if (0 if low is None else low, 1 if high is None else high) != (0, 1):
        transform.refuse(f"scales to {low} and {high}; packages scale to 0 and 1")
    percentiles(transform, scaling, [0, 100], False, channel_wise)


def scale_percentiles(transform, scaling):
    low, high, to_low, to_high, clip, channel_wise = transform.read("lower", "upper", "b_min", "b_max", "clip", "channel_wise")
    if (to_low, to_high) != (0, 1) and (to_low, to_high, bool(clip)) != (None, None, False):
        transform.refuse(f"scales to {to_low} and {to_high}; packages scale to 0 and 1")
    percentiles(transform, scaling, [low, high], clip, channel_wise)


def percentiles(transform, scaling, bounds, clip, channel_wise):
    if scaling.cropped is not None:
        transform.refuse("takes statistics of a volume that was cut to its foreground, which packages cannot do")
    scaling.measure(transform, {"percentiles": bounds} | ({"clip_to_percentiles": True} if clip else {}), channel_wise)


INTENSITY = {"ScaleIntensityRange": scale_range, "NormalizeIntensity": normalise, "ScaleIntensity": scale, "ScaleIntensityRangePercentiles": scale_percentiles}


class Before:
    """The transforms before the network. `options` are those of the exporter."""

    def __init__(self, config, key, channels, volumes):
        self.scaling, self.options, self.notes, self.turned = Scaling(channels), {}, [], not volumes
        order = []
        for transform in transforms_of(config, "preprocessing", key):
            if transform.own:
                transform.refuse("is no transform of MONAI, and packages have none of their own")
            if transform.name in INTENSITY:
                INTENSITY[transform.name](transform, self.scaling)
                order.append("scaling")
            elif transform.name == "LoadImage":
                self.load(transform)
            elif transform.name in ("Orientation", "Spacing") and volumes:
                (self.orientation if transform.name == "Orientation" else self.spacing)(transform)
                order.append(transform.name)
            elif transform.name == "CropForeground":
                self.scaling.cropped, self.scaling.limited_before = transform, self.scaling.clip is not None
                self.notes.append("MONAI first cuts away the background (CropForeground). The windows of a run cover the whole volume or picture")
            elif transform.name not in HARMLESS:
                transform.refuse("changes values or places in a way that packages cannot express; remove it if the model does not need it")
        if "Spacing" in order:
            at = order.index("Spacing")
            before, after = order[:at].count("scaling"), order[at:].count("scaling")
            if before and after:
                config.refuse(["preprocessing"], "scales values before and after Spacing; packages do one of them")
            self.options["scale_first"] = True if before else None
            if "Orientation" in order[at:] and len(set(self.options["spacing"])) > 1:
                config.refuse(["preprocessing"], "has Spacing before Orientation, so the axes of its pixdim are those of each file; put Orientation first")
        if self.scaling.cropped is not None and self.scaling.statistics:
            self.notes.append("MONAI takes the mean and deviation in the box of values above 0. Millrace takes those in the box of values other than 0, or of all such values. They are the same if no value is below 0")
        self.options |= self.scaling.options()

    def load(self, transform):
        """Readers of pictures give arrays [channel, x, y], unless they are asked for another order."""
        raw = transform.raw
        if raw.get("reverse_indexing") is False or str(raw.get("reader", "")).split(".")[-1] in ("WSIReader", "OpenSlideWSIReader", "CuCIMWSIReader", "TiffFileWSIReader"):
            self.turned = False

    def orientation(self, transform):
        codes, canonical = transform.read("axcodes", "as_closest_canonical")
        if "orientation" in self.options:
            transform.refuse("is a second Orientation; packages have one")
        self.options["orientation"] = "RAS" if canonical else "".join(codes)

    def spacing(self, transform):
        sides, mode, smallest, largest = transform.read("pixdim", "mode", "min_pixdim", "max_pixdim", for_each_key=("mode",))
        if "spacing" in self.options:
            transform.refuse("is a second Spacing; packages have one")
        if smallest is not None or largest is not None:
            transform.refuse("has min_pixdim or max_pixdim, which packages cannot have")
        sides = [sides] if isinstance(sides, (int, float)) else list(sides)
        self.options["spacing"] = [max(float(side), 0) for side in (sides + sides[-1:] * 3)[:3]]
        self.notes.append("MONAI resamples volumes from the centre of the first voxel, and probabilities back. Millrace resamples from edge to edge, and labels back. Volumes whose voxels have the size already stay the same")
        if mode not in (None, "bilinear", 1):
            self.notes.append(f"MONAI resamples with the mode {mode}, and Millrace linearly")


def after(config, key, channels):
    """(options of the exporter, notes) of the transforms behind the network, whose output has `channels`."""
    activation, threshold, argmax, notes = None, None, False, []
    for transform in transforms_of(config, "postprocessing", key) if config.has("postprocessing") else ():
        if transform.name == "Activations" and not transform.own:
            sigmoid, softmax = transform.read("sigmoid", "softmax", for_each_key=("sigmoid", "softmax"))
            if activation and (sigmoid or softmax):
                transform.refuse("is a second activation; packages have one")
            activation = "sigmoid" if sigmoid else "softmax" if softmax else activation
        elif transform.name == "AsDiscrete" and not transform.own:
            largest, limit, _, rounding = transform.read("argmax", "threshold", "to_onehot", "rounding", for_each_key=("argmax", "threshold", "to_onehot", "rounding"))
            if rounding is not None:
                limit = 0.5 if limit is None else limit
            argmax = argmax or bool(largest)
            threshold = threshold if argmax or limit is None else limit
        elif transform.name not in BACK:
            notes.append(f"MONAI then applies {transform.target} to its result, and Millrace does not")
    if not argmax and threshold is None:
        result, values = (f"probabilities ({activation})", "probabilities") if activation else ("what the network returns", "logits")
        labels = "the class with the largest value" if channels > 1 else f"places where the {'probability' if activation else 'sigmoid of the value'} is above 0.5"
        notes.append(f"the bundle makes no classes (AsDiscrete), so MONAI writes {result}. A run labels {labels}. --set semantic.values={values} --format npy also writes the values")
    if argmax and activation is None:
        activation = "softmax"
    if activation == "softmax" and threshold is not None:
        config.refuse(["postprocessing"], "has a threshold behind softmax; packages take the largest class there")
    if activation is None and threshold is not None:
        activation = "none"
    return {"activation": activation, "threshold": None if argmax else threshold}, notes
