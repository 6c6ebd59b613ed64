"""The built-in segmenter: small, with the contract of SAM (Kirillov et al. 2023) as models/export/segmenter.py states it.

    encode(images [B, 3, 512, 512] in 0..1, RGB) -> embedding [B, 384, 32, 32]
    decode(embedding, boxes [N, 4], image_index [N]) -> logits [N, 128, 128], predicted IoU [N]

The encoder is convolutional and sees a picture once. 128 channels of the embedding say what is where; the other 256 are 16 features of
each of a cell's 4x4 places, so that outlines finer than a cell survive. Five of the 16 are a claim: whether the place belongs to an object,
and to one of which box. A box is a prompt twice: as tokens (its corners, beside those of the mask and of the predicted IoU), and, as SAM's
mask prompts are, added to the picture: each place learns where in the box it lies and how well its claim agrees with it. The decoder lets
tokens and the 128 channels look at each other, enlarges these four times, adds the fine features, and gives each box the mask whose
weights its mask token holds.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from demo_detector import Block, Conv, Trunk

SIDE = 512
CHANNELS = 128
FRAME = 8 + 5  # terms of frame_terms() and agreement()
CLAIM = 5  # of the fine features
PARTS = 4  # maps that a mask is made of
FINE = 16  # features of each place at a stride of 4
HEADS = 4
STRIDE = 4  # pixels of the input a logit


class Encoder(nn.Module):
    """The detector's trunk, and what makes an embedding of its features."""

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
    """Multi-head attention whose inner width is half of the outer, as between tokens and image in SAM."""

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
    """Where tokens look: each head begins with a bell of its own width around the box's middle, and at claims that agree."""

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
    """Tokens look at each other and at the image, and the image at the tokens."""

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


def frame_terms(boxes, x, y, least=1.0):
    """1, u, v, uu, vv, uv and how far beyond the box's edges, with u, v from -1 to 1 across each box, at x [W] and y [H]: [N, 8, H, W].

    They tell a place where in the box it lies, and let a token draw an outline more finely than a logit is wide, which objects of a few
    pixels need. Half a side counts as `least` pixels at least.
    """
    centre, half = (boxes[:, :2] + boxes[:, 2:]) / 2, ((boxes[:, 2:] - boxes[:, :2]) / 2).clamp(min=least)
    u = ((x - centre[:, :1]) / half[:, :1]).clamp(-3, 3)[:, None, :].expand(-1, y.shape[0], -1)
    v = ((y - centre[:, 1:]) / half[:, 1:]).clamp(-3, 3)[:, :, None].expand(-1, -1, x.shape[0])
    beyond_u, beyond_v = F.relu(u.abs() - 1), F.relu(v.abs() - 1)
    return torch.stack([torch.ones_like(u), u, v, u * u, v * v, u * v, beyond_u, beyond_v], 1)


def claims(embedding, x, y):
    """What each place claims: logit of belonging to an object, centre x, y of its box in pixels, logarithms of width and height: [B, 5, H, W]."""
    told = F.pixel_shuffle(embedding[:, CHANNELS:], STRIDE)[:, :CLAIM].float()
    centre_x, centre_y = x + 32 * told[:, 1], y[:, None] + 32 * told[:, 2]
    return torch.stack([told[:, 0], centre_x, centre_y, 3 + told[:, 3], 3 + told[:, 4]], 1)


def agreement(claim, boxes):
    """How well the claims fit each box: chance of an object, distances of the centres in half sides, of the logarithms of the sides: [N, 5, H, W]."""
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
        # Plain tensors, not buffers: where weights are in 16 bits, places must stay in 32.
        self.frequencies = 2.0 ** torch.linspace(-1, 5.5, CHANNELS // 4)  # periods across the input
        self.cells = (torch.arange(SIDE // 16) + 0.5) * 16  # centres of the embedding's cells, in pixels
        self.places = (torch.arange(SIDE // STRIDE) + 0.5) * STRIDE  # centres of the logits

    def position(self, points):
        """Waves of points in 0..1: [..., 2] -> [..., CHANNELS]."""
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
        coarse = torch.cat([frame_terms(boxes, x, y, least=12.0), F.avg_pool2d(agreed, 4)], 1)
        coarse = coarse.type_as(embedding).flatten(2).transpose(1, 2)
        image = embedding[:, :CHANNELS].index_select(0, image_index).flatten(2).transpose(1, 2)
        image = self.image_norm(image + self.in_box(coarse))
        tokens, image = self.two_way(prompt, image, prompt, position, coarse)
        tokens = self.last_norm(tokens + self.last(tokens + prompt, image + position, image, self.look(coarse)))
        mask = tokens[:, 0]
        # In float32, and before `frame` is narrowed: a trace takes a tensor that needs no narrowing for the narrow one from there on.
        outline = torch.einsum("nk,nkhw->nhw", self.frame(mask).float(), frame)
        fine = self.refine(F.pixel_shuffle(embedding[:, CHANNELS:], STRIDE)).index_select(0, image_index)
        fine = fine + torch.einsum("ck,nkhw->nchw", self.in_box_fine.weight, frame.type_as(embedding))
        enlarged = F.silu(self.enlarge(image.transpose(1, 2).unflatten(2, (rows, columns))) + fine)
        parts = F.silu(torch.einsum("npc,nchw->nphw", self.parts(mask).unflatten(1, (PARTS, -1)), enlarged))
        logits = torch.einsum("np,nphw->nhw", self.sum(mask), parts).float() + outline
        return logits, self.iou(tokens[:, 1])[:, 0].float().sigmoid()


def claim_loss(claim, x, y, index, boxes, masks):
    """How wrong the places are about the objects they belong to; each object counts the same.

    claim [B, 5, H, W]; all objects of the B pictures: index [M], boxes [M, 4], masks [M, G, G] over them.
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
    # One of the claims of each place counts for an object: those of its own picture.
    off = agreement(claim.index_select(0, index), boxes)[:, 1:]
    return object_or_not + 0.5 * (off.sum(1) * weight).sum((1, 2)).mean()


def at_points(logits, points):
    """Logits bilinearly at points in input pixels [N, H, W, 2], as the two interpolations of SAM would show them: [N, H, W]."""
    scale = torch.tensor([logits.shape[2], logits.shape[1]], dtype=points.dtype) * STRIDE / 2
    return F.grid_sample(logits[:, None], points / scale - 1, align_corners=False, padding_mode="border")[:, 0]


def loss(logits, predicted_iou, boxes, masks, points=32):
    """boxes [N, 4] of the visible objects, masks [N, G, G] in 0..1 over them.

    Each object counts the same, whatever its size: it is compared at `points` x `points` places over 1.4 times its box, each drawn anew in
    its part. Beyond, no pixel may be taken: that is asked at fixed places over the picture.
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
