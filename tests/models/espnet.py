"""ESPNet, for tests with trained weights: the network with a decoder, p = 2 and q = 8.

S. Mehta, M. Rastegari, A. Caspi, L. Shapiro, H. Hajishirzi: ESPNet: Efficient Spatial Pyramid of Dilated Convolutions for
Semantic Segmentation. ECCV 2018. The names of the modules are those of the published weights.
"""

import torch
from torch import nn
from torch.nn import functional as F

DILATIONS = (1, 2, 4, 8, 16)
EPSILON = 1e-3


class Conv(nn.Module):
    """A convolution without bias. It keeps the picture's size, or divides it by the stride."""

    def __init__(self, inputs, outputs, size, stride=1, dilation=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2 * dilation, dilation=dilation, bias=False)

    def forward(self, x):
        return self.conv(x)


class NormAct(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels, eps=EPSILON)
        self.act = nn.PReLU(channels)

    def forward(self, x):
        return self.act(self.bn(x))


class ConvNormAct(NormAct):
    def __init__(self, inputs, outputs, size, stride=1):
        super().__init__(outputs)
        self.conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Pyramid(nn.Module):
    """Reduces the channels, convolves with five dilations, and sums the wide ones up hierarchically."""

    def __init__(self, inputs, outputs, size, stride):
        super().__init__()
        width = outputs // len(DILATIONS)
        self.c1 = Conv(inputs, width, size, stride)
        self.d1 = Conv(width, outputs - width * (len(DILATIONS) - 1), 3)
        self.d2, self.d4, self.d8, self.d16 = (Conv(width, width, 3, dilation=dilation) for dilation in DILATIONS[1:])

    def pyramid(self, x):
        x = self.c1(x)
        sum2 = self.d2(x)
        sum4 = sum2 + self.d4(x)
        sum8 = sum4 + self.d8(x)
        sum16 = sum8 + self.d16(x)
        return torch.cat([self.d1(x), sum2, sum4, sum8, sum16], 1)


class Downsampler(Pyramid):
    """A pyramid that halves the picture."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, 3, 2)
        self.bn = nn.BatchNorm2d(outputs, eps=EPSILON)
        self.act = nn.PReLU(outputs)

    def forward(self, x):
        return self.act(self.bn(self.pyramid(x)))


class ESPModule(Pyramid):
    """A pyramid that keeps the picture's size. It adds its input where `residual` is set."""

    def __init__(self, inputs, outputs, residual=True):
        super().__init__(inputs, outputs, 1, 1)
        self.bn = NormAct(outputs)
        self.residual = residual

    def forward(self, x):
        y = self.pyramid(x)
        return self.bn(x + y if self.residual else y)


class Encoder(nn.Module):
    """Returns the first convolution's features, those of 1/2 and 1/4 of the picture's sides, and scores of the classes at 1/8."""

    def __init__(self, classes, p=2, q=8):
        super().__init__()
        self.level1 = ConvNormAct(3, 16, 3, 2)
        self.b1 = NormAct(16 + 3)
        self.level2_0 = Downsampler(16 + 3, 64)
        self.level2 = nn.Sequential(*(ESPModule(64, 64) for _ in range(p)))
        self.b2 = NormAct(2 * 64 + 3)
        self.level3_0 = Downsampler(2 * 64 + 3, 128)
        self.level3 = nn.Sequential(*(ESPModule(128, 128) for _ in range(q)))
        self.b3 = NormAct(2 * 128)
        self.classifier = Conv(2 * 128, classes, 1)

    def forward(self, x):
        half = F.avg_pool2d(x, 3, 2, 1)
        quarter = F.avg_pool2d(half, 3, 2, 1)
        stem = self.level1(x)
        level1 = self.b1(torch.cat([stem, half], 1))
        first = self.level2_0(level1)
        level2 = self.b2(torch.cat([self.level2(first), first, quarter], 1))
        first = self.level3_0(level2)
        return stem, level1, level2, self.classifier(self.b3(torch.cat([first, self.level3(first)], 1)))


class ESPNet(nn.Module):
    """Gives the logits of each pixel: [B, classes, H, W]. The picture's sides are multiples of 8.

    The last convolution gets the features of 1/2 of the sides with the picture in them. Where `picture` is False, it gets
    those of the first convolution.
    """

    def __init__(self, classes, picture=True):
        super().__init__()
        self.picture = picture
        self.encoder = Encoder(classes)
        self.br = nn.BatchNorm2d(classes, eps=EPSILON)
        self.up_l3 = nn.Sequential(nn.ConvTranspose2d(classes, classes, 2, 2, bias=False))
        self.level3_C = Conv(2 * 64 + 3, classes, 1)
        self.combine_l2_l3 = nn.Sequential(NormAct(2 * classes), ESPModule(2 * classes, classes, residual=False))
        self.up_l2 = nn.Sequential(nn.ConvTranspose2d(classes, classes, 2, 2, bias=False), NormAct(classes))
        self.conv = ConvNormAct(classes + 16 + (3 if picture else 0), classes, 3)
        self.classifier = nn.ConvTranspose2d(classes, classes, 2, 2, bias=False)

    def forward(self, x):
        stem, level1, level2, level3 = self.encoder(x)
        both = torch.cat([self.level3_C(level2), self.up_l3(self.br(level3))], 1)
        return self.classifier(self.conv(torch.cat([self.up_l2(self.combine_l2_l3(both)), level1 if self.picture else stem], 1)))


def load(path):
    """The network with the weights of a file, in eval mode. The weights tell the classes, and what the last convolution gets."""
    weights = torch.load(path, map_location="cpu", weights_only=True)
    classes = len(weights["br.weight"])
    net = ESPNet(classes, picture=weights["conv.conv.weight"].shape[1] == classes + 16 + 3)
    net.load_state_dict(weights)
    return net.eval()
