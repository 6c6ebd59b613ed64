"""A small embedder of seeded weights, with a matrix of four classes, and a small regressor, for tests of the program."""

import hashlib

import numpy
import torch

YAML = """schema: 1
name: {name}
task: embed
architecture: small
input:
  width: 32
  height: 32
  colour: rgb
  scale: 0.0039215686274509803
  mean: [0.5, 0.5, 0.5]
  std: [0.25, 0.25, 0.25]
  resize: centre_crop
  shorter_side: 36
  filter: pil_bilinear_antialias
  pad: [0.0, 0.0, 0.0]
output: {{dimensions: 24, normalised: yes}}
classes: [anvil, bell, clock, door]
matrix: {{file: classes.f32, bias: no}}
max_batch: 8
licence: none
files: {{model.ts: {model}, classes.f32: {matrix}}}
"""


class Small(torch.nn.Module):
    """Vectors of 24 numbers that depend on every pixel."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.features = torch.nn.Conv2d(3, 24, 5, stride=3)

    @torch.jit.export
    def regress(self, images: torch.Tensor) -> torch.Tensor:
        return self.embed(images)

    @torch.jit.export
    def embed(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.features(images)).mean(dim=[2, 3]) - 0.1

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.embed(images)


def make(folder, name="small", seed=1):
    """Writes the package NAME.pkg into the folder, and returns its path."""
    made = folder / f"{name}.pkg"
    made.mkdir()
    torch.jit.script(Small(seed).eval()).save(str(made / "model.ts"))
    numpy.random.default_rng(seed).normal(size=(4, 24)).astype("<f4").tofile(made / "classes.f32")
    hashes = {key: hashlib.sha256((made / file).read_bytes()).hexdigest() for key, file in (("model", "model.ts"), ("matrix", "classes.f32"))}
    (made / "model.yaml").write_text(YAML.format(name=name, **hashes))
    return made


def make_regressor(folder, name="regressor", seed=1):
    """Writes the package NAME.pkg of a regressor with 24 values into the folder, and returns its path."""
    made = make(folder, name, seed)
    (made / "classes.f32").unlink()
    text = (made / "model.yaml").read_text().replace("task: embed", "task: regress").replace("{dimensions: 24, normalised: yes}", "{values: 24}")
    names = ", ".join(f"value {i}" for i in range(24))
    kept = [line for line in text.replace("classes: [anvil, bell, clock, door]", f"names: [{names}]").splitlines() if not line.startswith(("matrix", "files"))]
    (made / "model.yaml").write_text("\n".join([*kept, f"files: {{model.ts: {hashlib.sha256((made / 'model.ts').read_bytes()).hexdigest()}}}\n"]))
    return made
