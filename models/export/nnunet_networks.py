"""The networks of nnU-Net v2, as its plans describe them. Their tensors have the names of dynamic-network-architectures.

- PlainConvUNet: stages of convolutions
- ResidualEncoderUNet: a stem, then stages of residual blocks; its decoder is that of PlainConvUNet

That library registers many layers twice, and a checkpoint has both names. So these networks do, too, until slim() removes
the second ones: a TorchScript file would contain both.
"""

import torch
from torch import nn


class Shape:
    """The layers that a network is made of, for 2 or 3 dimensions."""

    def __init__(self, dimensions, norm, norm_options, activation, activation_options, dropout, bias):
        self.dimensions, self.bias, self.dropout = dimensions, bias, dropout
        self.norm, self.norm_options = norm, norm_options
        self.activation, self.activation_options = activation, activation_options

    def layer(self, name):
        return getattr(nn, f"{name}{self.dimensions}d")

    def sides(self, value):
        return [value] * self.dimensions if isinstance(value, int) else list(value)


class Convolution(nn.Module):
    """Convolution, normalisation and activation."""

    def __init__(self, shape, inputs, outputs, kernel, stride, active=True, bias=None, dropout=None):
        super().__init__()
        kernel = shape.sides(kernel)
        bias, dropout = shape.bias if bias is None else bias, shape.dropout if dropout is None else dropout
        self.conv = shape.layer("Conv")(inputs, outputs, kernel, shape.sides(stride), [(side - 1) // 2 for side in kernel], bias=bias)
        layers = [self.conv]
        if dropout:  # only in training; it has a place in the numbers of the layers
            layers.append(nn.Identity())
        if shape.norm:
            self.norm = shape.layer(shape.norm)(outputs, **shape.norm_options)
            layers.append(self.norm)
        if active and shape.activation:
            layers.append(shape.activation(**shape.activation_options))
        self.all_modules = nn.Sequential(*layers)

    def forward(self, x):
        return self.all_modules(x)


class Convolutions(nn.Module):
    def __init__(self, shape, count, inputs, outputs, kernel, stride):
        super().__init__()
        first = Convolution(shape, inputs, outputs, kernel, stride)
        self.convs = nn.Sequential(first, *(Convolution(shape, outputs, outputs, kernel, 1) for _ in range(count - 1)))

    def forward(self, x):
        return self.convs(x)


class Residual(nn.Module):
    """Two convolutions, and a way around them: an average over the stride, then a 1x1 convolution if channels change."""

    def __init__(self, shape, inputs, outputs, kernel, stride):
        super().__init__()
        stride = shape.sides(stride)
        self.conv1 = Convolution(shape, inputs, outputs, kernel, stride)
        self.conv2 = Convolution(shape, outputs, outputs, kernel, 1, active=False, dropout=False)
        self.last = shape.activation(**shape.activation_options) if shape.activation else nn.Identity()
        around = [shape.layer("AvgPool")(stride, stride)] if max(stride) > 1 else []
        if inputs != outputs:
            around.append(Convolution(shape, inputs, outputs, 1, 1, active=False, bias=False, dropout=False))
        self.skip = nn.Sequential(*around)

    def forward(self, x):
        return self.last(self.conv2(self.conv1(x)) + self.skip(x))


class Residuals(nn.Module):
    def __init__(self, shape, count, inputs, outputs, kernel, stride):
        super().__init__()
        first = Residual(shape, inputs, outputs, kernel, stride)
        self.blocks = nn.Sequential(first, *(Residual(shape, outputs, outputs, kernel, 1) for _ in range(count - 1)))

    def forward(self, x):
        return self.blocks(x)


class Encoder(nn.Module):
    """The results of all stages, the one of the lowest resolution last."""

    def __init__(self, stem, stages):
        super().__init__()
        self.stem = stem
        self.stages = nn.Sequential(*stages)

    def forward(self, x):
        x = self.stem(x)
        results = []
        for stage in self.stages:
            x = stage(x)
            results.append(x)
        return results


class Decoder(nn.Module):
    """Goes back to the full resolution. Only the last of the layers for deep supervision computes."""

    def __init__(self, encoder, shape, features, kernels, strides, counts, classes):
        super().__init__()
        self.encoder = encoder
        pairs = list(zip(features[:-1], features[1:], kernels[:-1], strides[1:]))[::-1]  # (fine, coarse, kernel, stride)
        up = shape.layer("ConvTranspose")
        self.transpconvs = nn.ModuleList(up(coarse, fine, shape.sides(stride), shape.sides(stride), bias=shape.bias) for fine, coarse, _, stride in pairs)
        self.stages = nn.ModuleList(Convolutions(shape, count, 2 * fine, fine, kernel, 1) for (fine, _, kernel, _), count in zip(pairs, counts))
        self.seg_layers = nn.ModuleList(shape.layer("Conv")(fine, classes, 1) for fine, *_ in pairs)

    def forward(self, results: list[torch.Tensor]):
        x = results[-1]
        step = 2
        for up, stage in zip(self.transpconvs, self.stages):
            x = stage(torch.cat([up(x), results[-step]], 1))
            step += 1
        return self.seg_layers[-1](x)


class UNet(nn.Module):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, images):
        return self.decoder(self.encoder(images))


class PlainConvUNet(UNet):
    pass


class ResidualEncoderUNet(UNet):
    pass


def build(name, shape, inputs, classes, features, kernels, strides, counts, decoder_counts):
    """The network `name`. The lists have a number, or one for each axis, for each stage of the encoder."""
    residual = name == "ResidualEncoderUNet"
    stages, channels = [], features[0] if residual else inputs
    for outputs, kernel, stride, count in zip(features, kernels, strides, counts):
        stage = (Residuals if residual else Convolutions)(shape, count, channels, outputs, kernel, stride)
        stages.append(stage if residual else nn.Sequential(stage))
        channels = outputs
    encoder = Encoder(Convolutions(shape, 1, inputs, features[0], kernels[0], 1) if residual else nn.Identity(), stages)
    decoder = Decoder(encoder, shape, features, kernels, strides, decoder_counts, classes)
    return (ResidualEncoderUNet if residual else PlainConvUNet)(encoder, decoder)


def slim(net):
    """Removes the second names of layers, and those that compute nothing without deep supervision."""
    for module in list(net.modules()):
        if isinstance(module, Convolution):
            del module.conv
            if hasattr(module, "norm"):
                del module.norm
    del net.decoder.encoder
    net.decoder.seg_layers = nn.ModuleList([net.decoder.seg_layers[-1]])
    return net
