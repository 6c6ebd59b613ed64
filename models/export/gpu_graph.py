"""Changes an exported module so that its code for a GPU reads and writes less memory. Only rounding changes.

Code for CPUs stays as it is: there, oneDNN's convolutions and products are faster.
"""

import operator

import torch
import torch._inductor.inductor_prims  # has inductor_force_stride_order
from torch.nn import functional

import gpu_depthwise
import gpu_upscaling

aten = torch.ops.aten
MOST_SHIFTS = 9  # a larger kernel reads each value more often; nobody has measured whether that pays


def shape_of(node):
    return tuple(node.meta["val"].shape)


def only_input(node, target):
    """The node's first input if it calls `target` and nothing else uses its result, else None."""
    source = node.args[0]
    return source if isinstance(source, torch.fx.Node) and source.target is target and len(source.users) == 1 else None


def chain(node, *targets):
    """The node and those before it, along first inputs: one for each target. None if another target follows, or if two read a result."""
    found = []
    for target in targets:
        if not isinstance(node, torch.fx.Node) or node.target is not target or len(node.users) != 1:
            return None
        found.append(node)
        node = node.args[0]
    return found


def transposed(node):
    """The tensor whose last two dimensions the node swaps, or None."""
    if node.target is not aten.transpose.int:
        return None
    return node.args[0] if {dim % node.meta["val"].dim() for dim in node.args[1:]} == {node.meta["val"].dim() - 2, node.meta["val"].dim() - 1} else None


def fuse_attention(module):
    """softmax(q k' * scale + bias) v becomes one operation, which stores no scores."""
    for softmax in module.graph.find_nodes(op="call_function", target=aten.softmax.int):
        added = only_input(softmax, aten.add.Tensor)
        scaled = added and only_input(added, aten.mul.Tensor)
        scores = scaled and only_input(scaled, aten.matmul.default)
        keys = scores and transposed(scores.args[1])
        if not keys or not isinstance(scaled.args[1], float):
            continue
        shape = scores.meta["val"].shape
        # A number is no mask, and neither is a tensor that gives the scores more dimensions or another size.
        bias = added.args[1] if isinstance(added.args[1], torch.fx.Node) and added.meta["val"].shape == shape else None
        plain = not added.kwargs and not softmax.kwargs and len(softmax.args) == 2 and softmax.args[1] % len(shape) == len(shape) - 1
        users = list(softmax.users)
        if bias is None or not plain or len(users) != 1 or users[0].target is not aten.matmul.default or users[0].args[0] is not softmax:
            continue
        (result,) = users
        with module.graph.inserting_before(result):
            fused = module.graph.call_function(aten.scaled_dot_product_attention.default, (scores.args[0], keys, result.args[1], bias), {"scale": scaled.args[1]})
        fused.meta["val"] = result.meta["val"]
        result.replace_all_uses_with(fused)


def value(module, node):
    """The tensor of a get_attr node."""
    return operator.attrgetter(node.target)(module)


def attend_by_columns(q, k, v, down, across, places, empty):
    """softmax(q k' + p) v, where p of a query and a key is down[query, row of the key] + across[query, column of the key].

    q, k, v: [B, N, C]. down: [B, H, W, H], across: [B, H, W, W]. `places` [N, H + W] has the row and the column of each
    key, as two ones. Further columns of queries and keys add p to their products. So no matrix of N x N is stored.
    `empty` columns follow.
    """
    queries = functional.pad(torch.cat([q, down.flatten(1, 2), across.flatten(1, 2)], 2), (0, empty))
    keys = functional.pad(torch.cat([k, places.type_as(k).expand(k.size(0), -1, -1)], 2), (0, empty))
    return functional.scaled_dot_product_attention(queries.unsqueeze(1), keys.unsqueeze(1), v.unsqueeze(1), scale=1.0).squeeze(1)


def positions_of(softmax):
    """q', k, the product of softmax and v, `down` and `across` of attend_by_columns, if `softmax` is that of SAM's ViT. Else None."""
    steps = chain(softmax.args[0], aten.view.default, aten.add.Tensor, aten.add.Tensor, aten.view.default, aten.matmul.default)
    users = list(softmax.users)
    if not steps or len(users) != 1 or users[0].target is not aten.matmul.default or users[0].args[0] is not softmax:
        return None
    (result,) = users
    _, with_across, with_down, split, scores = steps
    keys = transposed(scores.args[1])
    down, across = (one.args[1] if chain(one.args[1], aten.unsqueeze.default) and not one.kwargs else None for one in (with_down, with_across))
    if not keys or not down or not across or (down.args[1], across.args[1]) != (4, 3) or softmax.args[1:] not in ((-1,), (2,)) or softmax.kwargs:
        return None
    down, across = down.args[0], across.args[0]
    if len(shape_of(scores)) != 3 or shape_of(softmax) != shape_of(scores) or len(shape_of(split)) != 5:
        return None
    batch, height, width = shape_of(split)[:3]
    shapes = {split: (batch, height, width, height, width), down: (batch, height, width, height), across: (batch, height, width, width)}
    if any(shape_of(node) != shape for node, shape in shapes.items()) or shape_of(result.args[1])[0] != batch:
        return None
    return scores.args[0], keys, result, down, across


def fuse_positions(module):
    """SAM's ViT adds numbers for the distance of query and key to the scores. Its attention becomes one operation."""
    found = 0  # for the names of the new tensors
    weights = [weight for weight in module.parameters() if weight.is_floating_point()]  # of the run's type; `meta` has that of the export
    for softmax in module.graph.find_nodes(op="call_function", target=aten.softmax.int):
        parts = positions_of(softmax)
        if not parts:
            continue
        queries, keys, result, down, across = parts
        height, width = shape_of(down)[3], shape_of(across)[3]
        places = torch.cat([torch.eye(height).repeat_interleave(width, 0), torch.eye(width).repeat(height, 1)], 1)
        module.register_buffer(f"places_{found}", places.to(weights[0]) if weights else places)
        empty = -(shape_of(keys)[2] + height + width) % 8  # kernels for GPUs want a multiple of 8 columns
        with module.graph.inserting_before(result):
            tracer = torch.fx.proxy.GraphAppendingTracer(module.graph)
            inputs = (queries, keys, result.args[1], down, across, module.graph.get_attr(f"places_{found}"))
            fused = attend_by_columns(*(torch.fx.Proxy(node, tracer) for node in inputs), empty).node
        fused.meta["val"] = result.meta["val"]
        result.replace_all_uses_with(fused)
        found += 1


def fold_batch_norms(module):
    """Folds each batch norm into the convolution before it."""
    found = 0  # for the names of the new tensors
    for norm in module.graph.find_nodes(op="call_function", target=aten.batch_norm.default):
        convolution = only_input(norm, aten.conv2d.default)
        tensors = norm.args[1:5]
        training, epsilon = norm.args[5], norm.args[7]
        if convolution is None or training or any(tensor is None or tensor.op != "get_attr" for tensor in tensors):
            continue
        weight, bias = (convolution.args[i] if len(convolution.args) > i else None for i in (1, 2))
        if any(tensor is not None and tensor.op != "get_attr" for tensor in (weight, bias)):
            continue
        gamma, beta, mean, variance = (value(module, tensor).double() for tensor in tensors)
        factor = gamma / (variance + epsilon).sqrt()
        kind = value(module, weight).dtype
        before = 0 if bias is None else value(module, bias).double()
        folded = {"weight": value(module, weight).double() * factor[:, None, None, None], "bias": (before - mean) * factor + beta}
        arguments = list(convolution.args) + [None] * (3 - len(convolution.args))
        with module.graph.inserting_before(convolution):
            for i, (name, tensor) in enumerate(folded.items(), 1):
                module.register_buffer(f"folded_{found}_{name}", tensor.to(kind).contiguous())
                arguments[i] = module.graph.get_attr(f"folded_{found}_{name}")
                arguments[i].meta["val"] = value(module, arguments[i])
        convolution.args = tuple(arguments)
        norm.replace_all_uses_with(convolution)
        module.graph.erase_node(norm)
        found += 1


def shifted_products(images, weight, bias, kernel, size, stride, padding):
    """A depthwise convolution of images of `size` [H, W]. Inductor fuses all of it, and what follows, into one kernel."""
    lengths = [(size[axis] + 2 * padding[axis] - kernel[axis]) // stride[axis] * stride[axis] + 1 for axis in (0, 1)]
    total = None if bias is None else bias[:, None, None]
    for y in range(kernel[0]):
        for x in range(kernel[1]):
            top, left = padding[0] - y, padding[1] - x
            # Each shift reads the images themselves. With one padded copy for all, Inductor would store it in float32.
            # A negative number of pixels cuts.
            shifted = functional.pad(images, (left, lengths[1] - size[1] - left, top, lengths[0] - size[0] - top))
            product = shifted[:, :, :: stride[0], :: stride[1]] * weight[:, 0, y, x][:, None, None]
            total = product if total is None else total + product
    return total


def pair(values):
    """Both numbers of an argument that can also be one number."""
    return (values, values) if isinstance(values, int) else tuple(values) * (2 // len(values))


def following_gelu(node):
    """The exact GELU of the node's result if nothing else uses it, else None."""
    (user, *others) = node.users
    return None if others or user.target is not aten.gelu.default or user.kwargs else user


def replace_depthwise(module):
    """Depthwise convolutions become a kernel, with a GELU that follows, or a sum of at most MOST_SHIFTS products."""
    found = 0  # for the names of the new tensors
    for node in module.graph.find_nodes(op="call_function", target=aten.conv2d.default):
        images, weight, bias, stride, padding, dilation, groups = (*node.args, *(None, [1, 1], [0, 0], [1, 1], 1)[len(node.args) - 2 :])
        if weight.op != "get_attr":
            continue
        shape = value(module, weight).shape
        if groups == 1 or groups != shape[0] or shape[1] != 1 or set(pair(dilation)) != {1} or shape[2] * shape[3] > MOST_SHIFTS:
            continue
        if gpu_depthwise.possible(shape, pair(stride), pair(padding), value(module, weight).dtype):
            last = following_gelu(node) or node
            taps = value(module, weight).flatten(1).t()
            tensors = {"taps": taps, "bias": taps.new_zeros(shape[0]) if bias is None else value(module, bias)}
            with module.graph.inserting_before(last):
                for name, tensor in tensors.items():
                    module.register_buffer(f"depthwise_{found}_{name}", tensor.contiguous())
                inputs = [module.graph.get_attr(f"depthwise_{found}_{name}") for name in tensors]
                result = module.graph.call_function(torch.ops.millrace.depthwise.default, (images, *inputs, last is not node))
            result.meta["val"] = node.meta["val"]
            last.replace_all_uses_with(result)
            found += 1
            continue
        with module.graph.inserting_before(node):
            height, width = images.meta["val"].shape[2:]
            # Stored, with channels last. Otherwise Inductor would compute what comes before once for each shift.
            channels_last = [shape[0] * height * width, 1, shape[0] * width, shape[0]]
            images = module.graph.call_function(torch.ops.prims.inductor_force_stride_order.default, (images, channels_last))
            images, weight, bias = (tensor if tensor is None else torch.fx.Proxy(tensor) for tensor in (images, weight, bias))
            size = node.args[0].meta["val"].shape[2:]
            result = shifted_products(images, weight, bias, shape[2:], size, pair(stride), pair(padding)).node
        result.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(result)


def without_details(node):
    """A sum without the features of higher resolution that SAM 2 adds, these features, and the picture of each box."""
    other = node.args[1] if chain(node, aten.add.Tensor) and not node.kwargs else None
    if not isinstance(other, torch.fx.Node) or other.target is not aten.index_select.default or other.args[1] != 0:
        return node, None, None
    return node.args[0], other.args[0], other.args[2]


def before_masks(module, gelu):
    """The arguments of `upscale`, without the weights of masks, if `gelu` is the second one of an upscaling. Else None."""
    result, detail2, index = without_details(gelu.args[0])
    second = chain(result, aten.add.Tensor, aten.matmul.default, aten.gelu.default, aten.layer_norm.default, aten.unflatten.int)
    if not second:
        return None
    sum2, product2, inner, norm, split = second
    result, detail1, other_index = without_details(split.args[0])
    first = chain(result, aten.add.Tensor, aten.matmul.default)
    if not first or other_index is not index or split.args[1:] != (2, [4, -1]) or any(node.kwargs for node in (gelu, inner, sum2, first[0])):
        return None
    sum1, product1 = first
    image = product1.args[0]
    tensors = (product1.args[1], sum1.args[1], *norm.args[2:4], product2.args[1], sum2.args[1])
    if any(not isinstance(tensor, torch.fx.Node) or tensor.op != "get_attr" for tensor in tensors) or len(shape_of(image)) != 3:
        return None
    _, tokens, width = shape_of(image)
    shapes = [(width, width), (width,), (width // 4,), (width // 4,), (width // 4, width // 2), (width // 2,)]
    if [tuple(value(module, tensor).shape) for tensor in tensors] != shapes or not gpu_upscaling.possible(width, value(module, tensors[0]).dtype):
        return None
    # Without this, the kernel would read past features that are broadcast.
    if index is not None and (shape_of(detail1)[1:], shape_of(detail2)[1:]) != ((tokens, width), (tokens, 4, width // 2)):
        return None
    epsilon = norm.args[4] if len(norm.args) > 4 else 1e-5
    return [image, *tensors[:4], epsilon, *tensors[4:]], [detail1, detail2, index]


def masks_after(gelu, boxes, channels):
    """For each mask, its weights [boxes, channels] and the sum over their products with the places of all tokens. None if there is anything else."""
    flats = [flat for split in gelu.users for flat in split.users if flat.target is aten.flatten.using_ints and flat.args[1:] == (1, 3)]
    if not flats or not chain(flats[0].args[0], aten.unflatten.int, aten.gelu.default) or flats[0].args[0].args[1:] != (3, [4, -1]):
        return None
    masks = []
    for product in flats[0].users:
        if not chain(product, aten.mul.Tensor) or not chain(product.args[1], aten.unsqueeze.default):
            return None
        weights, dimension = product.args[1].args
        (total,) = product.users
        if dimension != 1 or shape_of(weights) != (boxes, channels) or total.target is not aten.sum.dim_IntList or total.args[1:] != ([2],) or total.kwargs:
            return None
        masks.append((weights, total))
    return masks


def fuse_upscaling(module):
    """The end of a box decoder becomes one kernel: from its image tokens to the logits of each mask (gpu_upscaling.plain)."""
    for gelu in module.graph.find_nodes(op="call_function", target=aten.gelu.default):
        found = before_masks(module, gelu)
        if not found:
            continue
        tensors, details = found
        boxes, _, width = shape_of(tensors[0])
        masks = masks_after(gelu, boxes, width // 8)
        if not masks:
            continue
        with module.graph.inserting_before(masks[0][1]):
            weights = module.graph.call_function(aten.stack.default, ([weights for weights, _ in masks], 1))
            logits = module.graph.call_function(torch.ops.millrace.upscale.default, (*tensors, weights, *details))
            for i, (_, total) in enumerate(masks):
                mask = module.graph.call_function(aten.select.int, (logits, 1, i))
                mask.meta["val"] = total.meta["val"]
                total.replace_all_uses_with(mask)


@torch.no_grad()
def for_gpu(module):
    """Changes the graph module in place, and returns it."""
    fuse_attention(module)
    fuse_positions(module)
    fold_batch_norms(module)
    replace_depthwise(module)
    fuse_upscaling(module)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module
