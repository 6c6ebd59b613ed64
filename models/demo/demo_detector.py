"""The built-in detector: a small convolutional network with three strides and an anchor-free head like YOLOv8's.

    forward(images [B, 3, H, W] in 0..1, RGB) -> [B, 4 + classes, anchors]

The output has centre x, y, width and height in input pixels, then the probabilities of the classes.

The strides are 4, 8 and 16. At 416 pixels, objects of the scenes are 5 to 87 pixels long, too small for a stride of 32.
"""

import torch
from torch import nn
from torch.nn import functional as F

SIDE = 416
STRIDES = (4, 8, 16)


class Conv(nn.Sequential):
    """Convolution, norm, SiLU; `groups` equal to the channels makes it depthwise."""

    def __init__(self, before, after, size=3, stride=1, groups=1):
        super().__init__(
            nn.Conv2d(before, after, size, stride, (size - stride + 1) // 2, groups=groups, bias=False), nn.BatchNorm2d(after), nn.SiLU(inplace=True)
        )


def fuse(model):
    """Folds the norms into the convolutions before them, for inference."""
    for module in model.modules():
        if isinstance(module, Conv):
            module[0], module[1] = nn.utils.fuse_conv_bn_eval(module[0], module[1]), nn.Identity()
    return model


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(Conv(channels, channels), Conv(channels, channels))

    def forward(self, x):
        return x + self.body(x)


class Block(nn.Module):
    """A cross-stage partial block: half of the channels pass through residuals. A convolution mixes all results."""

    def __init__(self, before, after, depth):
        super().__init__()
        self.split = Conv(before, after, 1)
        self.deep = nn.ModuleList(Residual(after // 2) for _ in range(depth))
        self.merge = Conv(after + depth * (after // 2), after, 1)

    def forward(self, x):
        parts = list(self.split(x).chunk(2, 1))
        for residual in self.deep:
            parts.append(residual(parts[-1]))
        return self.merge(torch.cat(parts, 1))


class Branch(nn.Sequential):
    """One of the two outputs of a level: classes, or distances to the four sides of a box."""

    def __init__(self, channels, outputs):
        super().__init__(
            Conv(channels, channels, 3, groups=channels), Conv(channels, channels, 1), nn.Conv2d(channels, outputs, 1)
        )


class Trunk(nn.Module):
    """The layers that detector and segmenter share: down to stride 32, then up to 4.

    Training of the segmenter starts with the detector's weights.
    """

    widths = (28, 64, 96)

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(Conv(3, 32, 6, 4), Block(32, 32, 1))
        self.down3 = nn.Sequential(Conv(32, 64, 3, 2), Block(64, 64, 1))
        self.down4 = nn.Sequential(Conv(64, 96, 3, 2), Block(96, 96, 1))
        self.down5 = nn.Sequential(Conv(96, 112, 3, 2), Block(112, 112, 1))
        self.up4 = Block(96 + 112, 96, 1)
        self.up3 = Block(64 + 96, 64, 1)
        self.up2 = nn.Sequential(Conv(32 + 64, 28, 1), Conv(28, 28, 3, groups=28))

    def forward(self, images):
        """images [B, 3, H, W] -> features at strides 4, 8 and 16, of `widths` channels"""
        p2 = self.stem(images)
        p3 = self.down3(p2)
        p4 = self.down4(p3)
        p4 = self.up4(torch.cat([p4, F.interpolate(self.down5(p4), scale_factor=2.0)], 1))
        p3 = self.up3(torch.cat([p3, F.interpolate(p4, scale_factor=2.0)], 1))
        p2 = self.up2(torch.cat([p2, F.interpolate(p3, scale_factor=2.0)], 1))
        return p2, p3, p4


class Detector(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.classes = classes
        self.trunk = Trunk()
        self.what = nn.ModuleList(Branch(width, classes) for width in Trunk.widths)
        self.where = nn.ModuleList(Branch(width, 4) for width in Trunk.widths)
        for branch in self.what:
            nn.init.constant_(branch[-1].bias, -4.5)  # an untrained network finds almost no objects
        self.set_input(SIDE, SIDE)

    def set_input(self, height, width):
        """Makes the anchors of this input size: centres of all cells in pixels [A, 2], and their strides [A]."""
        centres, strides = [], []
        for stride in STRIDES:
            y = (torch.arange(height // stride) + 0.5) * stride
            x = (torch.arange(width // stride) + 0.5) * stride
            centres.append(torch.stack([x.expand(len(y), len(x)), y[:, None].expand(len(y), len(x))], -1).flatten(0, 1))
            strides.append(torch.full((len(x) * len(y),), float(stride)))
        self.centres, self.strides = torch.cat(centres), torch.cat(strides)
        # In half pixels: then 16-bit integers are exact, and the package stays small.
        # Not a buffer: positions stay exact if weights are converted to 16 bits.
        self.anchors = (torch.cat([self.centres, self.strides[:, None]], 1) * 2).to(torch.int16)

    def raw(self, images):
        """Class logits [B, A, classes] and boxes x1, y1, x2, y2 in pixels [B, A, 4]."""
        levels = self.trunk(images)
        logits = torch.cat([branch(x).flatten(2) for branch, x in zip(self.what, levels)], 2).transpose(1, 2)
        sides = torch.cat([branch(x).flatten(2) for branch, x in zip(self.where, levels)], 2).transpose(1, 2)
        anchors = self.anchors.float() / 2
        sides = sides.float().clamp(-6, 6).exp() * anchors[:, 2:]
        return logits.float(), torch.cat([anchors[:, :2] - sides[..., :2], anchors[:, :2] + sides[..., 2:]], -1)

    def forward(self, images):
        logits, boxes = self.raw(images)
        centre = (boxes[..., :2] + boxes[..., 2:]) / 2
        return torch.cat([centre, boxes[..., 2:] - boxes[..., :2], logits.sigmoid()], -1).transpose(1, 2)


def overlap(a, b):
    """IoU and generalised IoU (Rezatofighi et al. 2019) of boxes x1, y1, x2, y2. Other dimensions broadcast."""
    size_a, size_b = (a[..., 2:] - a[..., :2]).clamp(min=0), (b[..., 2:] - b[..., :2]).clamp(min=0)
    inner = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
    outer = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
    union = size_a.prod(-1) + size_b.prod(-1) - inner
    iou = inner / union.clamp(min=1e-6)
    return iou, iou - (outer - union) / outer.clamp(min=1e-6)


@torch.no_grad()
def assign(model, logits, boxes, truth, labels, present, candidates=10):
    """Task-aligned assignment (Feng et al. 2021, TOOD): which object each anchor learns, and how strongly.

    truth [B, M, 4], labels [B, M], present [B, M] -> owner [B, A] (index into M), weight [B, A] (0: background)
    """
    score = logits.sigmoid().transpose(1, 2).gather(1, labels[..., None].expand(-1, -1, logits.shape[1]))  # [B, M, A]
    iou, _ = overlap(boxes[:, None], truth[:, :, None])
    centres = model.centres
    inside = (centres > truth[:, :, None, :2]).all(-1) & (centres < truth[:, :, None, 2:]).all(-1) & present[..., None]
    # Centres of the finest level near the object's middle count too: a small object may contain no centre.
    nearest = ((centres - (truth[..., None, :2] + truth[..., None, 2:]) / 2).abs().amax(-1) < STRIDES[0] * 0.75) & present[..., None]
    inside |= nearest & (model.strides == STRIDES[0])
    alignment = score.sqrt() * iou.pow(4) * inside
    best, at = alignment.topk(candidates, dim=-1)
    chosen = torch.zeros_like(inside).scatter_(2, at, best > 0)
    contest = torch.where(chosen, iou, -1.0)
    owner = contest.argmax(1)
    own = contest.amax(1) >= 0
    alignment, iou = (torch.where(chosen, value, 0.0) for value in (alignment, iou))
    strongest = alignment.amax(-1, keepdim=True).clamp(min=1e-9)
    weight = (alignment / strongest * iou.amax(-1, keepdim=True)).gather(1, owner[:, None])[:, 0]
    return owner, weight * own


def loss(model, images, truth, labels, present):
    logits, boxes = model.raw(images)
    owner, weight = assign(model, logits, boxes, truth, labels, present)
    total = weight.sum().clamp(min=1.0)
    target = torch.zeros_like(logits)
    target.scatter_(2, labels.gather(1, owner)[..., None], weight[..., None])
    chance = logits.sigmoid()
    # The weight of a background anchor is its error (varifocal loss, Zhang et al. 2021).
    # The weight of an object's anchor is its target.
    emphasis = torch.where(target > 0, target.clamp(min=0.2), 0.75 * chance.detach().square())
    what = (emphasis * F.binary_cross_entropy_with_logits(logits, target, reduction="none")).sum() / total
    chosen = weight > 0
    wanted = truth.gather(1, owner[..., None].expand(-1, -1, 4))[chosen]
    _, generalised = overlap(boxes[chosen], wanted)
    where = ((1 - generalised) * weight[chosen]).sum() / total
    return what + 2.0 * where, what.detach(), where.detach()
