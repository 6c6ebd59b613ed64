"""The built-in segmenter: small, with the contract of SAM (Kirillov et al. 2023, models/export/segmenter.py).

    encode(images [B, 3, 512, 512] in 0..1, RGB) -> embedding [B, 384, 32, 32]
    decode(embedding, boxes [N, 4], image_index [N]) -> logits [N, 128, 128], predicted IoU [N]

The convolutional encoder sees a picture once. Its embedding has two parts:
- 128 coarse channels describe each cell.
- 256 channels hold 16 fine features for each of a cell's 4x4 places, so that outlines finer than a cell survive.
  Five of the 16 are a claim: whether the place belongs to an object, and that object's box.

A box is a prompt in two ways:
- Its corners become tokens. Two more tokens are for the mask and for the predicted IoU.
- It is added to the image, like SAM's mask prompts.
  Each place learns its position in the box, and how well its claim fits the box.

In the decoder, tokens and coarse channels attend to each other.
Then the decoder enlarges the channels four times and adds the fine features.
The mask token gives the weights that turn these features into the mask of its box.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from demo_detector import Block, Conv, Trunk

SIDE = 512
CHANNELS = 128
FRAME = 8 + 5  # frame_terms() and agreement()
CLAIM = 5  # the first of the fine features
PARTS = 4  # maps that add up to a mask
FINE = 16  # features per place at stride 4
HEADS = 4
STRIDE = 4  # input pixels per logit


class Encoder(nn.Module):
    """The detector's trunk, and the layers that turn its features into an embedding."""

    def __init__(self):
        super().__init__()
        self.trunk = Trunk()
        at4, at8, at16 = Trunk.widths
        self.coarse = nn.Sequential(Block(at16, CHANNELS, 1), nn.Conv2d(CHANNELS, CHANNELS, 1))
        self.fine = nn.Sequential(Conv(at4 + at8, 48, 1), Conv(48, 48), nn.Conv2d(48, FINE, 1))

    def forward(self, images):
        at4, at8, at16 = self.trunk(images)
        fine = self.fine(torch.cat([at4, F.interpolate(at8, scale_factor=2.0)], 1))
        return torch.cat([self.coarse(at16), F.pixel_unshuffle(fine, STRIDE)], 1)


class Attention(nn.Module):
    """Multi-head attention. Its inner width is half of the outer one, as between tokens and image in SAM."""

    def __init__(self, inner=CHANNELS // 2):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(CHANNELS, inner) for _ in range(3))
        self.out = nn.Linear(inner, CHANNELS)

    def forward(self, query, key, value, bias=None):
        """`bias` is added to the attention's logits: [N, HEADS, queries or 1, keys]."""
        query, key, value = (
            project(x).unflatten(2, (HEADS, -1)).transpose(1, 2)
            for project, x in ((self.query, query), (self.key, key), (self.value, value))
        )
        return self.out(F.scaled_dot_product_attention(query, key, value, bias).transpose(1, 2).flatten(2))


class BoxBias(nn.Linear):
    """Biases attention towards the box.

    Before training, each head prefers the middle of the box, with a bell curve of its own width.
    It also prefers claims that fit the box.
    """

    def __init__(self):
        super().__init__(FRAME, HEADS, bias=False)
        with torch.no_grad():
            self.weight.zero_()
            self.weight[:, 3:5] = -torch.tensor([0.5, 1.0, 2.0, 4.0])[:, None]
            self.weight[:, -4:] = -1.0

    def forward(self, frame):
        """frame [N, cells, FRAME] -> [N, HEADS, 1, cells]"""
        return super().forward(frame).transpose(1, 2)[:, :, None]


class Perceptron(nn.Sequential):
    def __init__(self, outputs):
        super().__init__(nn.Linear(CHANNELS, CHANNELS), nn.GELU(), nn.Linear(CHANNELS, outputs))


class TwoWay(nn.Module):
    """Tokens attend to each other and to the image. Then the image attends to the tokens."""

    def __init__(self):
        super().__init__()
        self.among = Attention()
        self.to_image = Attention()
        self.look = BoxBias()
        self.to_tokens = Attention()
        self.think = Perceptron(CHANNELS)
        self.norms = nn.ModuleList(nn.LayerNorm(CHANNELS) for _ in range(4))

    def forward(self, tokens, image, prompt, position, frame):
        tokens = self.norms[0](tokens + self.among(tokens + prompt, tokens + prompt, tokens))
        tokens = self.norms[1](tokens + self.to_image(tokens + prompt, image + position, image, self.look(frame)))
        tokens = self.norms[2](tokens + self.think(tokens))
        image = self.norms[3](image + self.to_tokens(image + position, tokens + prompt, tokens))
        return tokens, image


def frame_terms(boxes, x, y, minimum=1.0):
    """The positions of places in each box: [N, 8, H, W], for places at x [W] and y [H].

    The terms are 1, u, v, uu, vv, uv, and the distances beyond the box's edges along u and v.
    Both u and v run from -1 to 1 across the box.
    With these terms, a token can draw an outline finer than a logit. Objects of a few pixels need that.
    Half a side counts as at least `minimum` pixels.
    """
    centre, half = (boxes[:, :2] + boxes[:, 2:]) / 2, ((boxes[:, 2:] - boxes[:, :2]) / 2).clamp(min=minimum)
    u = ((x - centre[:, :1]) / half[:, :1]).clamp(-3, 3)[:, None, :].expand(-1, y.shape[0], -1)
    v = ((y - centre[:, 1:]) / half[:, 1:]).clamp(-3, 3)[:, :, None].expand(-1, -1, x.shape[0])
    beyond_u, beyond_v = F.relu(u.abs() - 1), F.relu(v.abs() - 1)
    return torch.stack([torch.ones_like(u), u, v, u * u, v * v, u * v, beyond_u, beyond_v], 1)


def claims(embedding, x, y):
    """The claim of each place: [B, 5, H, W].

    The first value is the logit of belonging to an object. The others describe the object's box:
    x and y of its centre in pixels, and the logarithms of its width and height.
    """
    told = F.pixel_shuffle(embedding[:, CHANNELS:], STRIDE)[:, :CLAIM].float()
    centre_x, centre_y = x + 32 * told[:, 1], y[:, None] + 32 * told[:, 2]
    return torch.stack([told[:, 0], centre_x, centre_y, 3 + told[:, 3], 3 + told[:, 4]], 1)


def agreement(claim, boxes):
    """How well the claims fit each box: [N, 5, H, W].

    The first value is the probability of an object. The others compare the boxes:
    distances of their centres in half sides along x and y, and differences of the logarithms of width and height.
    """
    centre, half = (boxes[:, :2] + boxes[:, 2:]) / 2, ((boxes[:, 2:] - boxes[:, :2]) / 2).clamp(min=1.0)
    off_centre = (claim[:, 1:3] - centre[:, :, None, None]) / half[:, :, None, None]
    off_size = claim[:, 3:] - (2 * half).log()[:, :, None, None]
    return torch.cat([claim[:, :1].sigmoid(), torch.cat([off_centre, off_size], 1).abs().clamp(max=3.0)], 1)


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.tokens = nn.Parameter(0.5 * torch.randn(2, CHANNELS))  # mask, predicted IoU
        self.corners = nn.Parameter(0.5 * torch.randn(2, CHANNELS))  # top left, bottom right
        self.extent = Perceptron(CHANNELS)  # the box's position and size at several scales -> added to the mask token
        self.in_box = nn.Linear(FRAME, CHANNELS)
        self.image_norm = nn.LayerNorm(CHANNELS)
        self.two_way = TwoWay()
        self.last = Attention()
        self.look = BoxBias()
        self.last_norm = nn.LayerNorm(CHANNELS)
        self.enlarge = nn.Sequential(nn.ConvTranspose2d(CHANNELS, 48, 2, 2), nn.SiLU(), nn.ConvTranspose2d(48, 24, 2, 2))
        self.refine = nn.Conv2d(FINE, 24, 1)
        self.in_box_fine = nn.Linear(FRAME, 24, bias=False)
        self.parts = Perceptron(PARTS * 24)
        self.sum = Perceptron(PARTS)
        self.frame = Perceptron(FRAME)
        self.iou = Perceptron(1)
        # Plain tensors, not buffers: converting weights to 16 bits must not round positions.
        self.frequencies = 2.0 ** torch.linspace(-1, 5.5, CHANNELS // 4)  # 0.5 to 45 periods across the input
        self.cells = (torch.arange(SIDE // 16) + 0.5) * 16  # centres of the embedding's cells, in pixels
        self.places = (torch.arange(SIDE // STRIDE) + 0.5) * STRIDE  # centres of the logits

    def position(self, points):
        """Encodes points in 0..1 as sines and cosines: [..., 2] -> [..., CHANNELS]."""
        angles = 2 * math.pi * points[..., None] * self.frequencies
        return torch.cat([angles.sin(), angles.cos()], -1).flatten(-2)

    def encode(self, images):
        return self.encoder(images)

    def decode(self, embedding, boxes, image_index):
        rows, columns = embedding.shape[2:]
        x, y = self.cells[:columns], self.cells[:rows]
        grid = torch.stack([x.expand(rows, columns), y[:, None].expand(rows, columns)], -1) / SIDE
        position = self.position(grid).flatten(0, 1).type_as(embedding)
        corners = self.position(boxes.unflatten(1, (2, 2)) / SIDE).type_as(embedding) + self.corners
        centre, size = (boxes[:, :2] + boxes[:, 2:]) / 2 / SIDE, (boxes[:, 2:] - boxes[:, :2]) / SIDE
        extent = self.extent((self.position(size) + self.position(centre)).type_as(embedding))
        own = self.tokens.expand(boxes.shape[0], -1, -1) + extent[:, None]
        prompt = torch.cat([own, corners], 1)
        fine_x, fine_y = self.places[: 4 * columns], self.places[: 4 * rows]
        agreed = agreement(claims(embedding, fine_x, fine_y).index_select(0, image_index), boxes)
        frame = torch.cat([frame_terms(boxes, fine_x, fine_y), agreed], 1)
        coarse = torch.cat([frame_terms(boxes, x, y, minimum=12.0), F.avg_pool2d(agreed, 4)], 1)
        coarse = coarse.type_as(embedding).flatten(2).transpose(1, 2)
        image = embedding[:, :CHANNELS].index_select(0, image_index).flatten(2).transpose(1, 2)
        image = self.image_norm(image + self.in_box(coarse))
        tokens, image = self.two_way(prompt, image, prompt, position, coarse)
        tokens = self.last_norm(tokens + self.last(tokens + prompt, image + position, image, self.look(coarse)))
        mask = tokens[:, 0]
        # In float32, so before frame.type_as(embedding). Tracing runs in float32, so type_as() returns `frame` itself.
        # From there on, the trace would use the 16-bit result for `frame`.
        outline = torch.einsum("nk,nkhw->nhw", self.frame(mask).float(), frame)
        fine = self.refine(F.pixel_shuffle(embedding[:, CHANNELS:], STRIDE)).index_select(0, image_index)
        fine = fine + torch.einsum("ck,nkhw->nchw", self.in_box_fine.weight, frame.type_as(embedding))
        enlarged = F.silu(self.enlarge(image.transpose(1, 2).unflatten(2, (rows, columns))) + fine)
        parts = F.silu(torch.einsum("npc,nchw->nphw", self.parts(mask).unflatten(1, (PARTS, -1)), enlarged))
        logits = torch.einsum("np,nphw->nhw", self.sum(mask), parts).float() + outline
        return logits, self.iou(tokens[:, 1])[:, 0].float().sigmoid()


def claim_loss(claim, x, y, index, boxes, masks):
    """The loss of claims. Each object counts the same.

    claim is [B, 5, H, W]. M is the number of objects in all B pictures: index [M] has their pictures, boxes is [M, 4].
    Masks [M, G, G] are over the boxes.
    """
    width, height = (boxes[:, 2] - boxes[:, 0]).clamp(min=1), (boxes[:, 3] - boxes[:, 1]).clamp(min=1)
    u = (x[None, :] - (boxes[:, 0] + boxes[:, 2])[:, None] / 2) / width[:, None] * 2
    v = (y[None, :] - (boxes[:, 1] + boxes[:, 3])[:, None] / 2) / height[:, None] * 2
    lookup = torch.stack([u[:, None, :].expand(-1, len(y), -1), v[:, :, None].expand(-1, -1, len(x))], -1)
    member = F.grid_sample(masks[:, None], lookup, align_corners=False, padding_mode="zeros")[:, 0]
    taken = torch.zeros_like(claim[:, 0]).index_add(0, index, member).clamp(max=1)
    object_or_not = F.binary_cross_entropy_with_logits(claim[:, 0], taken)
    weight = (member > 0.5).float()
    weight = weight / weight.sum((1, 2), keepdim=True).clamp(min=1)
    # Each object is compared with the claims of its own picture.
    off = agreement(claim.index_select(0, index), boxes)[:, 1:]
    return object_or_not + 0.5 * (off.sum(1) * weight).sum((1, 2)).mean()


def at_points(logits, points):
    """Logits at points in input pixels [N, H, W, 2], interpolated bilinearly like SAM's two steps: [N, H, W]."""
    scale = torch.tensor([logits.shape[2], logits.shape[1]], dtype=points.dtype) * STRIDE / 2
    return F.grid_sample(logits[:, None], points / scale - 1, align_corners=False, padding_mode="border")[:, 0]


def loss(logits, predicted_iou, boxes, masks, points=32):
    """The loss of masks. Returns it with the mean IoU and the mean Dice loss.

    boxes [N, 4] are those of the visible objects, masks [N, G, G] are in 0..1 over the boxes.
    Large and small objects count the same: each is compared at `points` x `points` places over 1.4 times its box.
    These places are drawn anew at each call.
    Outside of that area a mask must be empty, which is checked at fixed places of the picture.
    """
    across = (torch.arange(points) + torch.rand(2, len(boxes), points)) / points * 1.4 - 0.2  # of the box's sides
    x = boxes[:, :1] + across[0] * (boxes[:, 2:3] - boxes[:, :1])
    y = boxes[:, 1:2] + across[1] * (boxes[:, 3:] - boxes[:, 1:2])
    places = torch.stack([x[:, None, :].expand(-1, points, -1), y[:, :, None].expand(-1, -1, points)], -1)
    inner = across * 2 - 1
    lookup = torch.stack([inner[0][:, None, :].expand(-1, points, -1), inner[1][:, :, None].expand(-1, -1, points)], -1)
    truth = F.grid_sample(masks[:, None], lookup, align_corners=False, padding_mode="zeros")[:, 0]
    found = at_points(logits, places)
    chance = found.sigmoid()
    cross = F.binary_cross_entropy_with_logits(found, truth)
    dice = 1 - (2 * (chance * truth).sum((1, 2)) + 1) / ((chance + truth).sum((1, 2)) + 1)
    with torch.no_grad():
        mask, wanted = found > 0, truth > 0.5
        iou = (mask & wanted).sum((1, 2)) / (mask | wanted).sum((1, 2)).clamp(min=1)
    far = F.softplus(logits)[:, 2::8, 2::8]
    rows = (torch.arange(far.shape[1]) * 8 + 2.5) * STRIDE
    columns = (torch.arange(far.shape[2]) * 8 + 2.5) * STRIDE
    outside = ((columns[None, None] < x[:, :1, None]) | (columns[None, None] > x[:, -1:, None])) | (
        (rows[None, :, None] < y[:, :1, None]) | (rows[None, :, None] > y[:, -1:, None])
    )
    beyond = (far * outside).sum() / outside.sum().clamp(min=1)
    return cross + dice.mean() + beyond + 0.3 * (predicted_iou - iou).square().mean(), iou.mean(), dice.mean().detach()
