"""The mask decoder of SAM for box prompts: the same function as the original with a third of the arithmetic.

Two forms share the weights:

- `loop` decodes one box after another on image tokens that stay in the CPU's cache.
- `batch` decodes all boxes at once, for GPUs and for torch.export, which cannot loop over a number of boxes.

Letters in shapes: D channels (256), N image tokens (64 x 64), B boxes of a call. A box has T prompt tokens: those of
the outputs (predicted IoU and masks), then those of its corners. Cross attention has H heads of K channels.
R = H * T rows, one for each head and prompt token. In `loop`, arrays over image tokens have them last: [R, N].

Both forms use that

1. in layer 0, keys, values and queries of the image do not depend on the box, so a picture has them once;
2. T is small, so projections move from the N image tokens to the R rows: q . (W x) = (W^T q) . x;
3. W e is constant for the positions e; a softmax ignores what is equal for all its tokens; its weights sum to 1, so
   biases of values move behind it;
4. only the tokens that are read take part in the last attention;
5. transposed convolutions with kernel 2 and stride 2 are a matrix for each image token.

`loop` also uses that LayerNorm changes an update of low rank by one factor for each token. With C = centring:

    norm(x + a^T R) = r C(x + a^T R) gamma + beta,  r = 1 / sqrt(|C(x + a^T R)|^2 / D + eps)
    |C(x + a^T R)|^2 = |Cx|^2 + a . (2 CR Cx + (CR CR^T) a)

So it never forms the image tokens of a box. A box has R rows after layer 0, 2R rows after layer 1 and a factor for
each token. A product with its image tokens is one with a map of the picture plus one with these rows.
"""

from typing import Final, List, NamedTuple, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MAPS = ("norm1", "k1", "v1", "q1", "norm2_first", "norm2_second", "kf", "vf")


def centred(matrix):
    return matrix - matrix.mean(-1, keepdim=True)


def perceptron(module):
    """The linear layers of an MLP in their order, with ReLU between them."""
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))[:-1]


def unshuffle(features, side):
    """Channels for the places of each image token: [P, C, n * side, n * side] -> [P, n * n * C, side, side].

    Places are in the order of the decoder's upscaling: 2 x 2, then 2 x 2 in each of these.
    """
    while features.shape[2] > side:
        features = features.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).permute(0, 3, 5, 1, 2, 4).flatten(1, 3)
    return features


class SelfAttention(nn.Module):
    """Attention among the prompt tokens of each box: [B, T, D]."""

    def __init__(self, original):
        super().__init__()
        self.heads: Final[int] = original.num_heads
        self.q, self.k, self.v, self.out = original.q_proj, original.k_proj, original.v_proj, original.out_proj

    def forward(self, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = (
            self.q(keys).unflatten(2, [self.heads, -1]).transpose(1, 2),
            self.k(keys).unflatten(2, [self.heads, -1]).transpose(1, 2),
            self.v(values).unflatten(2, [self.heads, -1]).transpose(1, 2),
        )
        weights = torch.softmax(q @ k.transpose(2, 3) * q.shape[3] ** -0.5, 3)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Picture(NamedTuple):
    """What the boxes of one picture share in `loop`.

    - layer0 [3, H, K, N]: keys, values and queries of layer 0
    - maps [8, H, K, N]: the maps of MAPS
    - squares [3, N]: the parts of the norms' squares that do not depend on the box
    - up [N, D]: the picture's part of the first transposed convolution
    - details: features of two and of four times the resolution, [N, D] and [4N, D / 2]; may be empty
    """

    layer0: Tensor
    maps: Tensor
    squares: Tensor
    up: Tensor
    details: List[Tensor]


class BoxDecoder(nn.Module):
    """decode(embedding [P, C, h, w], corners [B, T', D], image_index [B]) -> logits [B, 4h, 4w], predicted IoU [B].

    `corners` are the prompt tokens of the boxes. `image_index` has the picture of each box.
    With `best_of`, the decoder chooses a mask by SAM 2's rule. It takes mask 0 if that is stable.
    Otherwise it takes the one of the other masks with the highest predicted IoU. Without `best_of`, it takes mask 0.
    With `details`, the channels D to 4D of the embedding are SAM 2's features of higher resolution (see `unshuffle`).
    """

    box_chunk: Final[int] = 10  # boxes whose prompt tokens go through layers together
    token_chunk: Final[int] = 2048  # image tokens that are upscaled together: 2 MB, which fit the cache

    def __init__(self, prompt, decoder):
        super().__init__()
        transformer = decoder.transformer
        first, second = transformer.layers
        last = transformer.final_attn_token_to_image
        up = decoder.output_upscaling
        to_image0, to_tokens0 = first.cross_attn_token_to_image, first.cross_attn_image_to_token
        to_image1, to_tokens1 = second.cross_attn_token_to_image, second.cross_attn_image_to_token
        H, D = last.num_heads, last.embedding_dim
        K = last.internal_dim // H
        scale = K**-0.5
        self.H: Final[int] = H
        self.K: Final[int] = K
        self.D: Final[int] = D
        self.height: Final[int] = prompt.image_embedding_size[0]
        self.width: Final[int] = prompt.image_embedding_size[1]
        self.details: Final[bool] = getattr(decoder, "use_high_res_features", False)
        self.best_of: Final[bool] = getattr(decoder, "dynamic_multimask_via_stability", False)
        self.stable_delta: Final[float] = getattr(decoder, "dynamic_multimask_stability_delta", 0.0)
        self.stable_share: Final[float] = getattr(decoder, "dynamic_multimask_stability_thresh", 0.0)
        self.iou_sigmoid: Final[bool] = getattr(decoder.iou_prediction_head, "sigmoid", False)
        self.eps: Final[Tuple[float, float, float]] = (first.norm4.eps, second.norm4.eps, up[1].eps)

        # Prompt tokens: the original layers.
        self.self0, self.self1 = SelfAttention(first.self_attn), SelfAttention(second.self_attn)
        self.norms = nn.ModuleList([first.norm1, first.norm2, first.norm3, second.norm1, second.norm2, second.norm3, transformer.norm_final_attn])
        self.mlp0, self.mlp1 = perceptron(first.mlp), perceptron(second.mlp)
        self.q0, self.out0, self.v0 = to_image0.q_proj, to_image0.out_proj, to_tokens0.v_proj
        self.q1, self.out1, self.v1 = to_image1.q_proj, to_image1.out_proj, to_tokens1.v_proj
        self.qf, self.outf = last.q_proj, last.out_proj
        self.weights = nn.ModuleList(perceptron(part) for part in decoder.output_hypernetworks_mlps[: None if self.best_of else 1])
        self.iou = perceptron(decoder.iou_prediction_head)

        def constant(name, value):
            self.register_buffer(name, value.detach().clone().contiguous())

        own = [decoder.iou_token.weight, decoder.mask_tokens.weight]
        scores_object = getattr(decoder, "pred_obj_scores", False)  # a token whose output is not read
        self.own_begin: Final[int] = int(scores_object)
        constant("own", torch.cat([decoder.obj_score_token.weight, *own] if scores_object else own))
        constant("k0_weight", to_tokens0.k_proj.weight)
        constant("k1_weight", to_tokens1.k_proj.weight)

        # Image tokens. e: their positions [D, N].
        e = prompt.get_dense_pe().flatten(2)[0]
        gamma1, beta1, gamma2, beta2 = first.norm4.weight, first.norm4.bias, second.norm4.weight, second.norm4.bias

        def split(matrix):  # [H * K, n] -> [H, K, n]
            return matrix.reshape(H, K, -1)

        constant("no_mask", prompt.no_mask_embed.weight[0][:, None])
        constant("gamma1", gamma1)
        constant("gamma2", gamma2)
        constant("layer0_weight", torch.cat([to_image0.k_proj.weight * scale, to_image0.v_proj.weight, to_tokens0.q_proj.weight * scale]))
        constant(
            "layer0_constant",
            torch.cat(
                [
                    scale * (to_image0.k_proj.weight @ e),
                    to_image0.v_proj.bias[:, None].expand(-1, e.shape[1]),
                    scale * (to_tokens0.q_proj.weight @ e + to_tokens0.q_proj.bias[:, None]),
                ]
            ),
        )
        constant("out0_bias", to_tokens0.out_proj.bias[:, None])
        # The norms centre their input, so these projections may be centred before.
        out0, out1 = (centred(split_out) for split_out in (split(to_tokens0.out_proj.weight.t()), split(to_tokens1.out_proj.weight.t())))
        constant("to_tokens0_out", out0)
        constant("to_tokens1_out", out1)
        # Below, image tokens are without beta1 or beta2. What these add is in the constants.
        constant("between", centred(beta1 + to_tokens1.out_proj.bias))
        constant("k1", split(scale * to_image1.k_proj.weight))
        constant("k1_position", split(scale * to_image1.k_proj.weight @ e))
        constant("v1_weight", to_image1.v_proj.weight)
        constant("v1_bias", to_image1.v_proj.bias + to_image1.v_proj.weight @ beta1)
        constant("image_q1", split(scale * to_tokens1.q_proj.weight))
        constant("image_q1_position", split(scale * (to_tokens1.q_proj.weight @ e + (to_tokens1.q_proj.bias + to_tokens1.q_proj.weight @ beta1)[:, None])))
        constant("image_q1_bias", split(scale * to_tokens1.q_proj.bias))
        constant("places", e.t() + beta1)  # a softmax over image tokens ignores beta1, one over prompt tokens does not
        constant("kf", split(scale * last.k_proj.weight))
        constant("kf_position", split(scale * last.k_proj.weight @ e))
        constant("vf_weight", last.v_proj.weight)
        constant("vf_bias", last.v_proj.bias + last.v_proj.weight @ beta2)

        # The maps of `loop`, in the order of MAPS: products with Cx, and with C(gamma1 Cx).
        rows0, rows1 = out0.reshape(H * K, D), out1.reshape(H * K, D)
        constant(
            "maps1_weight",
            torch.cat([2 * rows0, scale * to_image1.k_proj.weight * gamma1, to_image1.v_proj.weight * gamma1, scale * to_tokens1.q_proj.weight * gamma1]),
        )
        constant("maps2_weight", torch.cat([2 * rows0 * gamma1, 2 * rows1, scale * last.k_proj.weight * gamma2, last.v_proj.weight * gamma2]))

        # Upscaling: D channels of a token -> 2 x 2 places with D / 4 -> 4 x 4 places with D / 8.
        up1 = up[0].weight.permute(2, 3, 1, 0).reshape(-1, D)
        constant("up1_weight", up1.t())
        constant("up1_bias", up[0].bias.repeat(4) + up1 @ beta2)
        constant("up_gamma", up[1].weight)
        constant("up_beta", up[1].bias)
        constant("up2_weight", up[3].weight.permute(0, 2, 3, 1).reshape(D // 4, -1))
        constant("up2_bias", up[3].bias.repeat(4))

    def forward(self, embedding: Tensor, corners: Tensor, image_index: Tensor) -> Tuple[Tensor, Tensor]:
        if torch.jit.is_scripting() and embedding.is_cpu:
            return self.loop(embedding, corners, image_index)
        return self.batch(embedding, corners, image_index)

    # Parts of both forms.

    def heads(self, x: Tensor) -> Tensor:
        """[B, T, H * K] -> [B, H, T, K]"""
        return x.unflatten(2, [self.H, -1]).transpose(1, 2)

    def read(self, tokens: Tensor) -> Tensor:
        """The tokens whose outputs are read: predicted IoU, then masks."""
        return tokens[:, self.own_begin : self.own_begin + 1 + len(self.weights)]

    def outputs(self, tokens: Tensor) -> Tuple[Tensor, Tensor]:
        """Weights of the masks [B, D / 8, masks] and predicted IoU [B, masks] from the tokens of `read`."""
        quality = self.iou(tokens[:, 0])
        if self.iou_sigmoid:
            quality = quality.sigmoid()
        weights: List[Tensor] = []
        for i, layers in enumerate(self.weights):
            weights.append(layers(tokens[:, 1 + i]))
        return torch.stack(weights, 2), quality[:, : len(weights)]

    def choose(self, logits: Tensor, quality: Tensor) -> Tuple[Tensor, Tensor]:
        """One mask of each box: logits [B, N * 16, masks] -> [B, 4h, 4w], quality [B, masks] -> [B]."""
        if self.best_of:
            inside = (logits[:, :, 0] > self.stable_delta).sum(1).float()
            around = (logits[:, :, 0] > -self.stable_delta).sum(1).float()
            stable = torch.where(around > 0, inside / around, 1.0) >= self.stable_share
            best = torch.where(stable, 0, 1 + quality[:, 1:].argmax(1))
            logits = logits.gather(2, best[:, None, None].expand(-1, logits.shape[1], 1))
            quality = quality.gather(1, best[:, None])
        # A token's places are in the order (2 x 2, then 2 x 2).
        places = logits.unflatten(1, [self.height, self.width, 2, 2, 2, 2])[..., 0]
        return places.permute(0, 1, 3, 5, 2, 4, 6).flatten(4).flatten(1, 3).flatten(2), quality[:, 0]

    # One box after another.

    def picture(self, embedding: Tensor) -> Picture:
        """embedding: [C, N]"""
        x = embedding[: self.D] + self.no_mask
        layer0 = self.layer0_weight @ x + self.layer0_constant
        x = x + self.out0_bias
        x = x - x.mean(0, keepdim=True)
        scaled = x * self.gamma1[:, None]
        scaled = scaled - scaled.mean(0, keepdim=True)
        maps = torch.cat([self.maps1_weight @ x, self.maps2_weight @ scaled])
        squares = torch.stack([x.square().sum(0), scaled.square().sum(0), 2 * (self.between @ scaled)])
        details: List[Tensor] = []
        if self.details:
            details.append(embedding[self.D : 2 * self.D].t().contiguous())
            details.append(embedding[2 * self.D :].t().reshape(-1, self.D // 2))
        return Picture(
            layer0.unflatten(0, [3, self.H, self.K]),
            maps.unflatten(0, [8, self.H, self.K]),
            squares,
            (scaled * self.gamma2[:, None]).t() @ self.up1_weight,
            details,
        )

    def loop(self, embedding: Tensor, corners: Tensor, image_index: Tensor) -> Tuple[Tensor, Tensor]:
        logits = torch.empty([corners.shape[0], 4 * self.height, 4 * self.width], dtype=embedding.dtype)
        quality = torch.empty([corners.shape[0]], dtype=embedding.dtype)
        for i in range(embedding.shape[0]):
            boxes = (image_index == i).nonzero()[:, 0]
            if boxes.shape[0] == 0:
                continue
            picture = self.picture(embedding[i].flatten(1))
            for chunk in boxes.split(self.box_chunk):
                found, iou = self.boxes(picture, corners[chunk])
                logits[chunk], quality[chunk] = self.choose(found, iou)
        return logits, quality

    def boxes(self, picture: Picture, corners: Tensor) -> Tuple[Tensor, Tensor]:
        """Logits [B, N * 16, masks] and predicted IoU [B, masks] for boxes of one picture."""
        H, D = self.H, self.D
        count, N = corners.shape[0], picture.up.shape[0]
        image_k0, image_v0, image_q0 = picture.layer0[0], picture.layer0[1], picture.layer0[2]
        norm1, k1, v1, q1, norm2_first, norm2_second, kf, vf = picture.maps.unbind(0)
        prompt = torch.cat([self.own.expand(count, -1, -1), corners], 1)
        states: List[Tensor] = []  # weights of the image tokens' updates: [R, N], later [2R, N]
        rows: List[Tensor] = []  # what these weights add: [R, D], later [2R, D]
        factors: List[Tensor] = []  # of the norms: [N]
        seen: List[Tensor] = []

        # Layer 0, and the attention of layer 1 to the image.
        tokens = self.norms[0](self.self0(prompt, prompt))
        q = self.heads(self.q0(tokens + prompt))
        for i in range(count):
            seen.append(torch.softmax(q[i] @ image_k0, 2) @ image_v0.transpose(1, 2))
        tokens = self.norms[1](tokens + self.out0(torch.stack(seen).transpose(1, 2).flatten(2)))
        tokens = self.norms[2](tokens + self.mlp0(tokens))
        k, first_v = self.heads(F.linear(tokens + prompt, self.k0_weight)), self.heads(self.v0(tokens))
        tokens = self.norms[3](tokens + self.self1(tokens + prompt, tokens))
        q = self.heads(self.q1(tokens + prompt))
        seen.clear()
        for i in range(count):
            a = torch.softmax(k[i] @ image_q0, 1).view(-1, N)
            r = (first_v[i] @ self.to_tokens0_out).view(-1, D)
            square = (first_v[i] @ norm1).view(-1, N).addmm_(r @ r.t(), a).mul_(a).sum(0) + picture.squares[0]
            factor = torch.rsqrt(square.clamp_(min=0) / D + self.eps[0])  # rounding may make it negative
            r = r * self.gamma1
            score = (q[i] @ k1).view(-1, N).addmm_((q[i] @ self.k1).view(-1, D) @ r.t(), a).mul_(factor)
            weight = torch.softmax(score.view(H, -1, N).baddbmm_(q[i], self.k1_position), 2).mul_(factor)
            seen.append(self.values(weight, v1, a, r @ self.v1_weight.t()))
            states.append(a)
            rows.append(r)
            factors.append(factor)

        # Layer 1, and the last attention.
        tokens = self.norms[4](tokens + self.out1(torch.stack(seen).transpose(1, 2).flatten(2) + self.v1_bias))
        tokens = self.norms[5](tokens + self.mlp1(tokens))
        k, v = self.heads(F.linear(tokens + prompt, self.k1_weight)), self.heads(self.v1(tokens))
        tokens = self.read(tokens)
        q = self.heads(self.qf(tokens + self.read(prompt)))
        seen.clear()
        for i in range(count):
            a, r, factor = states[i], rows[i], factors[i]
            score = (k[i] @ q1).view(-1, N).addmm_((k[i] @ self.image_q1).view(-1, D) @ r.t(), a).mul_(factor)
            weight = torch.softmax(score.view(H, -1, N).baddbmm_(k[i], self.image_q1_position), 1)
            a = torch.cat([a * factor, weight.view(-1, N)])
            # The weights of each head sum to 1, so `between` may be part of the rows.
            r = torch.cat([r - r.mean(1, keepdim=True), (v[i] @ self.to_tokens1_out).view(-1, D) + self.between / H])
            square = torch.cat([first_v[i] @ norm2_first, v[i] @ norm2_second]).view(-1, N).mul_(factor)
            square = square.addmm_(r @ r.t(), a).mul_(a).sum(0) + factor * (factor * picture.squares[1] + picture.squares[2])
            second = torch.rsqrt(square.clamp_(min=0) / D + self.eps[1])
            r = r * self.gamma2
            a.mul_(second)
            factor = factor * second
            score = (q[i] @ kf).view(-1, N).mul_(factor).addmm_((q[i] @ self.kf).view(-1, D) @ r.t(), a)
            weight = torch.softmax(score.view(H, -1, N).baddbmm_(q[i], self.kf_position), 2)
            seen.append(self.values(weight, vf * factor, a, r @ self.vf_weight.t()))
            states[i], rows[i], factors[i] = a, r @ self.up1_weight, factor

        tokens = self.norms[6](tokens + self.outf(torch.stack(seen).transpose(1, 2).flatten(2) + self.vf_bias))
        weights, quality = self.outputs(tokens)
        logits = torch.empty([count, N * 16, weights.shape[2]], dtype=corners.dtype)
        for i in range(count):
            for begin in range(0, N, self.token_chunk):
                end = min(begin + self.token_chunk, N)
                y = torch.addcmul(self.up1_bias, picture.up[begin:end], factors[i][begin:end, None])
                y = y.addmm_(states[i][:, begin:end].t(), rows[i])
                if self.details:
                    y += picture.details[0][begin:end]
                y = F.layer_norm(y.view(-1, D // 4), [D // 4], self.up_gamma, self.up_beta, self.eps[2])
                y = torch.addmm(self.up2_bias, F.gelu(y), self.up2_weight)
                if self.details:
                    y += picture.details[1][4 * begin : 4 * end]
                logits[i, 16 * begin : 16 * end] = F.gelu(y).view(-1, D // 8) @ weights[i]
        return logits, quality

    def values(self, weight: Tensor, shared: Tensor, state: Tensor, rows: Tensor) -> Tensor:
        """What prompt tokens get from the image tokens of a box: [H, T, K].

        weight [H, T, N], shared [H, K, N]: the picture's part of the values. The box's part is state^T rows.
        """
        part = (weight.view(-1, weight.shape[2]) @ state.t()).view(self.H, -1, state.shape[0])
        return torch.baddbmm(weight @ shared.transpose(1, 2), part, rows.view(-1, self.H, self.K).transpose(0, 1))

    # All boxes at once.

    def by_head(self, rows: Tensor, matrices: Tensor) -> Tensor:
        """A matrix of each head for the rows of all boxes: [B, H, T, m], [H, m, n] -> [B, H, T, n].

        The product of these shapes would copy the matrices for each box.
        """
        return (rows.transpose(0, 1).flatten(1, 2) @ matrices).unflatten(1, [-1, rows.shape[2]]).transpose(0, 1)

    def values_by_head(self, seen: Tensor, v_weight: Tensor) -> Tensor:
        """The values in what each row saw of the image tokens, without their bias: [B, R, D] -> [B, T, H * K]."""
        values = self.by_head(seen.unflatten(1, [self.H, -1]), v_weight.unflatten(0, [self.H, self.K]).transpose(1, 2))
        return values.transpose(1, 2).flatten(2)

    def batch(self, embedding: Tensor, corners: Tensor, image_index: Tensor) -> Tuple[Tensor, Tensor]:
        H, D = self.H, self.D
        count = corners.shape[0]
        prompt = torch.cat([self.own.expand(count, -1, -1), corners], 1)
        embedding = embedding.flatten(2).transpose(1, 2)
        x = embedding[:, :, :D]

        # Layer 0. Scores of image tokens have the prompt tokens last: a compiler makes one kernel of their softmax.
        layer0 = x @ self.layer0_weight.t() + (self.layer0_constant + self.layer0_weight @ self.no_mask).t()
        image_k, image_v, image_q = layer0.unflatten(2, [3, H, self.K]).index_select(0, image_index).transpose(1, 3).unbind(2)
        tokens = self.norms[0](self.self0(prompt, prompt))
        seen = F.scaled_dot_product_attention(self.heads(self.q0(tokens + prompt)), image_k, image_v, scale=1.0)
        tokens = self.norms[1](tokens + self.out0(seen.transpose(1, 2).flatten(2)))
        tokens = self.norms[2](tokens + self.mlp0(tokens))
        k = self.heads(F.linear(tokens + prompt, self.k0_weight))
        weight = torch.softmax((image_q @ k.transpose(2, 3)).transpose(1, 2), 3).flatten(2)
        rows = self.by_head(self.heads(self.v0(tokens)), self.to_tokens0_out).flatten(1, 2)
        image = (x + (self.no_mask + self.out0_bias).t()).index_select(0, image_index) + weight @ rows
        image = F.layer_norm(image[:, None], [D], self.gamma1, None, self.eps[0])  # [B, 1, N, D]: attention with one head

        # Layer 1. With positions in its keys, the attention needs no mask, so it is one kernel and writes no scores.
        placed = image + self.places
        tokens = self.norms[3](tokens + self.self1(tokens + prompt, tokens))
        rows = self.by_head(self.heads(self.q1(tokens + prompt)), self.k1).flatten(1, 2)
        seen = F.scaled_dot_product_attention(rows[:, None], placed, image, scale=1.0)[:, 0]
        tokens = self.norms[4](tokens + self.out1(self.values_by_head(seen, self.v1_weight) + self.v1_bias))
        tokens = self.norms[5](tokens + self.mlp1(tokens))
        k = self.heads(F.linear(tokens + prompt, self.k1_weight))
        rows, bias = self.by_head(k, self.image_q1).flatten(1, 2), self.by_head(k, self.image_q1_bias).flatten(1, 2)
        weight = torch.softmax((placed[:, 0] @ rows.transpose(1, 2) + bias.transpose(1, 2)).unflatten(2, [H, -1]), 3).flatten(2)
        rows = self.by_head(self.heads(self.v1(tokens)), self.to_tokens1_out).flatten(1, 2)
        image = F.layer_norm(image[:, 0] + self.between + weight @ rows, [D], self.gamma2, None, self.eps[1])

        # The last attention, and the masks.
        tokens = self.read(tokens)
        q = self.heads(self.qf(tokens + self.read(prompt)))
        score = self.by_head(q, self.kf).flatten(1, 2) @ image.transpose(1, 2) + self.by_head(q, self.kf_position).flatten(1, 2)
        seen = torch.softmax(score, 2) @ image
        tokens = self.norms[6](tokens + self.outf(self.values_by_head(seen, self.vf_weight) + self.vf_bias))
        weights, quality = self.outputs(tokens)
        y = image @ self.up1_weight + self.up1_bias
        if self.details:
            y = y + embedding[:, :, D : 2 * D].index_select(0, image_index)
        y = F.layer_norm(y.unflatten(2, [4, -1]), [D // 4], self.up_gamma, self.up_beta, self.eps[2])
        y = F.gelu(y) @ self.up2_weight + self.up2_bias
        if self.details:
            y = y + embedding[:, :, 2 * D :].unflatten(2, [4, -1]).index_select(0, image_index)
        y = F.gelu(y).unflatten(3, [4, -1]).flatten(1, 3)
        # Sums, not a matrix product: a compiler fuses them with GELU, so the largest tensor is not written again.
        masks = [(y * weight[:, None]).sum(2) for weight in weights.unbind(2)]
        return self.choose(torch.stack(masks, 2), quality)
