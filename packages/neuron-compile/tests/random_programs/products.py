"""Statements of sums of products: matrices, convolutions; and of windows, attention, losses."""

import torch

from .builder import Builder, Value


def matmul(build: Builder) -> None:
    x = build.pick(lambda value: not value.boolean and value.rank >= 1)
    if x is None:
        return
    y = build.pick(lambda value: value.dtype == x.dtype and value.rank >= 1 and value.shape[-1] == x.shape[-1])
    assert y is not None
    forms = [
        "{x} @ {y}",
        "torch.inner({x}, {y})",
        "torch.outer({x}.flatten()[:9], {y}.flatten()[:9])",
        "torch.matmul({x}, {y}.flatten())",
    ]
    if y.rank >= 2:
        forms += [
            "{x} @ {y}.mT",
            "torch.matmul({y}, {x}.mT)",
            "F.linear({x}, {y})",
            "F.linear({x}, {y}, {y}.select(-1, 0))",
        ]
        forms += [
            "torch.einsum('...i,ji->...j', {x}, {y})",
            "torch.addmm({x}, {x}, {y}.mT)",
            "torch.mv({y}, {x}.flatten())",
        ]
        forms += [
            "torch.bmm({x}, {y}.mT)",
            "torch.baddbmm({x}, {x}, {y}.mT, beta=0.5)",
            "torch.tensordot({x}, {y}, ([-1], [-1]))",
        ]
    form = build.one(*forms)
    build.add(form.format(x=x.name, y=y.name), exact=x.exact and y.exact and not x.floating)


def convolve(build: Builder) -> None:
    x = build.pick(lambda value: value.floating and 2 <= value.rank <= 4 and value.example.numel() > 0)
    # In narrow formats an infinity makes eager mode's results NaN where no window has it.
    if x is None or not (x.finite or x.example.dtype is torch.float32):
        return
    w, stride, padding = build.number(1, 3), build.number(1, 2), build.number(0, 1)
    lifted, dims = _lifted(x)
    channels = x.shape[-dims - 1] if x.rank > dims else 1
    kernel = "(" + ", ".join([str(w)] * dims) + ",)"
    count = 2 * channels * w**dims
    numbers = f"torch.arange({count}, device={x.name}.device).to({x.name}.dtype)"
    weight = f"({numbers}.view(2, {channels}, *{kernel}) / 8 - 1)"
    form = build.one(
        f"F.conv{dims}d({lifted}, {weight}, stride={stride}, padding={padding})",
        f"F.conv{dims}d({lifted}, {weight}, dilation={stride}, padding='same')",
        f"F.conv_transpose{dims}d({lifted}, {weight}.transpose(0, 1), stride={stride}, padding={padding})",
        f"F.conv{dims}d({lifted}, {weight}[:, :1].repeat({channels}, *[1] * {dims + 1}), groups={channels})",
        f"F.conv{dims}d({lifted}, {weight}, {x.name}.flatten()[:1].expand(2), padding={padding})",
    )
    build.add(form, exact=False)


def pool(build: Builder) -> None:
    x = build.pick(lambda value: value.floating and 2 <= value.rank <= 4 and value.example.numel() > 0)
    if x is None:
        return
    w, stride = build.number(1, 3), build.number(1, 2)
    lifted, dims = _lifted(x)
    mode = "linear" if dims == 1 else "bilinear"
    form = build.one(
        f"F.max_pool{dims}d({lifted}, {w}, stride={stride})",
        f"F.avg_pool{dims}d({lifted}, {w}, stride={stride})",
        f"F.max_pool{dims}d({lifted}, {w + 1}, stride={stride}, padding=1, ceil_mode=True)",
        f"F.avg_pool{dims}d({lifted}, {w + 1}, stride={stride}, padding=1, count_include_pad=False)",
        f"F.adaptive_avg_pool{dims}d({lifted}, {w})",
        f"F.adaptive_max_pool{dims}d({lifted}, {w})",
        f"F.interpolate({lifted}, scale_factor=2, mode='nearest')",
        f"F.interpolate({lifted}, scale_factor=2, mode='{mode}', align_corners={build.flag()})",
        f"F.lp_pool{dims}d({lifted}, 2, {w})",
    )
    if "max" in form and not x.exact:
        return
    # PyTorch's compiler, not the device's, computes a + t * (b - a): NaN of infinities, where eager mode is infinite.
    if "linear" in form and not x.finite:
        return
    build.add(form, exact="max" in form or ("nearest" in form and x.exact))


def _lifted(x: Value) -> tuple[str, int]:
    """Return the value with a batch, and how many dimensions are an image's."""
    dims = 1 if x.rank <= 3 else 2
    return (f"{x.name}[None]" if x.rank == 2 else x.name), dims


def attend(build: Builder) -> None:
    x = build.pick(lambda value: value.floating and value.rank >= 2)
    if x is not None:
        y = build.pick(lambda value: value.shape == x.shape and value.dtype == x.dtype)
        assert y is not None
        form = build.one(
            "F.scaled_dot_product_attention({x}, {y}, {y})",
            "F.scaled_dot_product_attention({x}, {y}, {x}, is_causal=True)",
            "torch.cdist({x}, {y} + 1)",
            "F.cosine_similarity({x}, {y} + 2, dim=-1)",
            "F.pairwise_distance({x}, {y} + 1)",
            "torch.cross({x}[..., :3], {y}[..., :3], dim=-1)",
            "torch.kron({x}[:2], {y}[:2])",
        )
        # Whether what is masked counts is the kernel's choice, and the CPU's takes a row of NaN for a masked one.
        if "attention" in form and not (x.finite and y.finite):
            return
        build.add(form.format(x=x.name, y=y.name), exact=False)


def lose(build: Builder) -> None:
    x = build.pick(lambda value: value.floating)
    if x is None:
        return
    y = build.pick(lambda value: value.shape == x.shape and value.dtype == x.dtype)
    assert y is not None
    how = build.one("mean", "sum", "none")
    forms = [
        "F.mse_loss({x}, {y}, reduction='{r}')",
        "F.l1_loss({x}, {y}, reduction='{r}')",
        "F.smooth_l1_loss({x}, {y}, reduction='{r}')",
        "F.huber_loss({x}, {y}, reduction='{r}')",
        "F.binary_cross_entropy_with_logits({x}, torch.sigmoid({y}), reduction='{r}')",
        "F.kl_div({x}, torch.sigmoid({y}), reduction='{r}')",
        "F.soft_margin_loss({x}, torch.sign({y}), reduction='{r}')",
        "F.poisson_nll_loss({x}.clamp(max=2), {y}.abs(), reduction='{r}')",
        "F.hinge_embedding_loss({x}, torch.ones_like({y}), reduction='{r}')",
    ]
    if "sign" in forms[6] and not y.exact:
        del forms[6]
    if x.rank == 2 and x.shape[1] > 1:
        target = f"(torch.arange({x.shape[0]}, device={x.name}.device) % {x.shape[1]})"
        forms += [
            f"F.cross_entropy({{x}}, {target}, reduction='{{r}}')",
            f"F.nll_loss({{x}}, {target}, reduction='{{r}}', ignore_index=0)",
            f"F.cross_entropy({{x}}, {target}, reduction='{{r}}', label_smoothing=0.1)",
            "F.cross_entropy({x}, torch.softmax({y}, 1), reduction='{r}')",
            f"F.multi_margin_loss({{x}}, {target}, reduction='{{r}}')",
        ]
    build.add(build.one(*forms).format(x=x.name, y=y.name, r=how), exact=False)


FAMILIES = (matmul, matmul, convolve, pool, attend, lose)
