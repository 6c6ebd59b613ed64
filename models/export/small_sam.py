"""A SAM-like segmenter for tests: the contract of segmenter.py with few channels and an input of 256 pixels."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from segmenter import outline_bias, positions

CHANNELS = 32
HEADS = 4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(CHANNELS, CHANNELS) for _ in range(4))

    def forward(self, query, key, value):
        query, key, value = (
            project(x).unflatten(2, (HEADS, -1)).transpose(1, 2)
            for project, x in ((self.query, query), (self.key, key), (self.value, value))
        )
        return self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


class SmallSam(nn.Module):
    side = 256

    def __init__(self, seed, bias):
        super().__init__()
        torch.manual_seed(seed)
        self.bias = bias
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 16, 4, stride=4),
            nn.GELU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(32, CHANNELS, 3, stride=2, padding=1),
            nn.GroupNorm(1, CHANNELS),
        )
        self.frequencies = torch.randn(2, CHANNELS // 2)  # a plain tensor stays in float32 in any precision
        self.corners = nn.Parameter(torch.randn(2, CHANNELS))
        self.tokens = nn.Parameter(torch.randn(2, CHANNELS))  # one for the mask, one for the predicted IoU
        self.to_image, self.to_tokens, self.last = Attention(), Attention(), Attention()
        self.norms = nn.ModuleList(nn.LayerNorm(CHANNELS) for _ in range(3))
        self.upscale = nn.Sequential(
            nn.ConvTranspose2d(CHANNELS, 16, 2, stride=2), nn.GELU(), nn.ConvTranspose2d(16, 8, 2, stride=2), nn.GELU()
        )
        self.mask_weights = nn.Linear(CHANNELS, 8)
        self.iou = nn.Linear(CHANNELS, 1)
        rows = self.side // 16
        steps = (torch.arange(rows) + 0.5) / rows
        grid = torch.stack([steps.expand(rows, rows), steps[:, None].expand(rows, rows)], dim=-1)
        self.positions = positions(4 * rows, 4)
        self.register_buffer("grid", self.position(grid).flatten(0, 1))

    def position(self, points):
        """Fourier features of points in 0..1: [..., 2] -> [..., CHANNELS]."""
        angles = 2 * math.pi * (2 * points - 1) @ self.frequencies
        return torch.cat([angles.sin(), angles.cos()], dim=-1)

    def encode(self, images):
        return self.encoder(images)

    def decode(self, embedding, boxes, image_index):
        corners = self.position((boxes.unflatten(1, (2, 2)) + 0.5) / self.side).type_as(embedding) + self.corners
        prompt = torch.cat([self.tokens.expand(boxes.shape[0], -1, -1), corners], dim=1)
        image = embedding.index_select(0, image_index).flatten(2).transpose(1, 2)
        tokens = self.norms[0](prompt + self.to_image(prompt, image + self.grid, image))
        image = self.norms[1](image + self.to_tokens(image + self.grid, tokens + prompt, tokens))
        tokens = self.norms[2](tokens + self.last(tokens + prompt, image + self.grid, image))
        upscaled = self.upscale(image.transpose(1, 2).unflatten(2, embedding.shape[2:]))
        logits = torch.einsum("nc,nchw->nhw", self.mask_weights(tokens[:, 0]), upscaled).float()
        if self.bias:
            logits = logits + outline_bias(boxes, self.positions, self.positions)
        return logits, self.iou(tokens[:, 1])[:, 0].float().sigmoid()
