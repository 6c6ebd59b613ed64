"""W-Net, for tests with trained weights: two small U-Nets, and the second one gets the picture and the first one's logits.

A. Galdran, A. Anjos, J. Dolz, H. Chakor, H. Lombaert, I. Ben Ayed: The Little W-Net That Could: State-of-the-Art Retinal
Vessel Segmentation with Minimalistic Models. 2020. The names of the modules are those of the published weights.

The one output for vessels needs a sigmoid. The four outputs for arteries and veins need a softmax: background, uncertain, artery, vein.
"""

import torch
from torch import nn
from torch.nn import functional as F


def convolutions(inputs, *outputs):
    """Convolutions of 3x3. A ReLU and then a batch normalisation follow each."""
    layers = []
    for width in outputs:
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(width)]
        inputs = width
    return nn.Sequential(*layers)


class Bridge(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.block = convolutions(channels, channels)

    def forward(self, x):
        return self.block(x)


class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.block = convolutions(inputs, outputs, outputs)

    def forward(self, x):
        return self.block(x) + self.shortcut(x)


class Doubler(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.block = nn.Sequential(nn.ConvTranspose2d(inputs, outputs, 2, 2))

    def forward(self, x):
        return self.block(x)


class Up(nn.Module):
    """Doubles the sides of the features, and joins them with those of the way down."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.up_layer = Doubler(inputs, outputs)
        self.conv_layer = Residual(2 * outputs, outputs)
        self.conv_bridge_layer = Bridge(outputs)

    def forward(self, x, across):
        return self.conv_layer(torch.cat([self.up_layer(x), self.conv_bridge_layer(across)], 1))


class UNet(nn.Module):
    """`widths` has the channels of each level, from the picture's size downwards."""

    def __init__(self, inputs, outputs, widths):
        super().__init__()
        self.first = Residual(inputs, widths[0])
        self.down_path = nn.ModuleList(Residual(*pair) for pair in zip(widths, widths[1:]))
        self.up_path = nn.ModuleList(Up(*pair) for pair in zip(widths[:0:-1], widths[-2::-1]))
        self.final = nn.Conv2d(widths[0], outputs, 1)

    def forward(self, x):
        x = self.first(x)
        levels = [x]
        for down in self.down_path:
            x = down(F.max_pool2d(x, 2))
            levels.append(x)
        for level, up in enumerate(self.up_path):
            x = up(x, levels[-2 - level])
        return self.final(x)


class WNet(nn.Module):
    """Gives the logits of each pixel: [B, outputs, H, W]. The picture's sides are multiples of 2^(levels - 1)."""

    def __init__(self, outputs, widths):
        super().__init__()
        self.unet1 = UNet(3, outputs, widths)
        self.unet2 = UNet(3 + outputs, outputs, widths)

    def forward(self, x):
        return self.unet2(torch.cat([x, self.unet1(x)], 1))


def load(path):
    """The network with the weights of a file, in eval mode. The weights tell its outputs and its widths."""
    weights = torch.load(path, map_location="cpu", weights_only=True)["model_state_dict"]
    down = [key for key in weights if key.startswith("unet1.down_path.") and key.endswith(".block.0.weight")]
    widths = [len(weights[key]) for key in ("unet1.first.block.0.weight", *down)]
    net = WNet(len(weights["unet1.final.bias"]), widths)
    net.load_state_dict(weights)
    return net.eval()
