"""A small semantic segmenter of seeded weights, for tests of the program."""

import hashlib
import itertools

import torch

YAML = """schema: 1
name: {name}
task: semantic
architecture: small
input: {{width: 32, height: 32, colour: rgb, scale: 0.0039215686274509803, mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}}
output: {{channels: 4, activation: softmax}}
classes: [anvil, bell, clock, door]
max_batch: 8
licence: none
files: {{model.ts: {model}}}
"""


class Small(torch.nn.Module):
    """Logits that depend on the surroundings of a pixel, and on its place in the window."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.first = torch.nn.Conv2d(3, 8, 5, padding=2)
        self.last = torch.nn.Conv2d(8, 4, 9, padding=4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(images)))


VOLUMES = """schema: 1
name: {name}
task: semantic
architecture: small
input: {{width: 64, height: 64, depth: 64, axes: xyz, scale: 1, mean: [100], std: [50]}}
output: {{channels: 14, activation: softmax}}
classes: [a, b, c, d, e, f, g, h, i, j, k, l, m, n]
max_batch: 8
licence: none
files: {{model.ts: {model}}}
"""


class SmallVolumes(torch.nn.Module):
    """14 logits for each voxel."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.only = torch.nn.Conv3d(1, 14, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.only(images)


def mirrored(net, axes):
    """The mean of what the net finds in windows that are mirrored along these axes of the tensor, in all ways."""
    ways = [way for count in range(len(axes) + 1) for way in itertools.combinations(axes, count)]
    return lambda images: sum(net(images.flip(way)).flip(way) for way in ways) / len(ways)


def write(folder, name, net, description):
    made = folder / f"{name}.pkg"
    made.mkdir()
    torch.jit.script(net.eval()).save(str(made / "model.ts"))
    (made / "model.yaml").write_text(description.format(name=name, model=hashlib.sha256((made / "model.ts").read_bytes()).hexdigest()))
    return made


def make(folder, name="small_semantic", seed=1):
    """Writes the package NAME.pkg into the folder, and returns its path."""
    return write(folder, name, Small(seed), YAML)


def make_volumes(folder, name="small_volumes", seed=1):
    """The same for volumes, with 14 classes."""
    return write(folder, name, SmallVolumes(seed), VOLUMES)
