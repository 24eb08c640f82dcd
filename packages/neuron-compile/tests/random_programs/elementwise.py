"""Statements whose result at a place depends on what is at that place."""

import torch
from hypothesis import strategies as st

from .builder import Builder
from .program import FLOATS, INTEGERS


def smooth(build: Builder) -> None:
    x = build.pick(lambda value: value.floating)
    if x is not None:
        form = build.one(
            "torch.tanh({x})",
            "torch.sigmoid({x})",
            "torch.sin({x})",
            "torch.cos({x})",
            "F.gelu({x})",
            "F.silu({x})",
            "torch.exp(-{x}.abs())",
            "torch.exp2(-{x}.abs())",
            "torch.sqrt({x}.abs() + 1)",
            "torch.log1p({x}.abs())",
            "torch.rsqrt({x}.abs() + 1)",
            "torch.reciprocal({x}.abs() + 1)",
            "torch.log({x}.abs() + 1)",
            "torch.log2({x}.abs() + 1)",
            "torch.log10({x}.abs() + 1)",
            "F.softplus({x})",
            "torch.erf({x})",
            "torch.erfc({x})",
            "{x} * 0.5 + 1",
            "{x} / 3",
            "F.elu({x})",
            "F.celu({x}, 0.7)",
            "F.selu({x})",
            "torch.atan({x})",
            "torch.asinh({x})",
            "torch.sinh({x}.clamp(-2, 2))",
            "torch.cosh({x}.clamp(-2, 2))",
            "torch.expm1(-{x}.abs())",
            "F.mish({x})",
            "F.gelu({x}, approximate='tanh')",
            "F.hardswish({x})",
            "F.hardsigmoid({x})",
            "F.leaky_relu({x}, 0.1)",
            "F.logsigmoid({x})",
            "F.softsign({x})",
            "F.tanhshrink({x})",
            "torch.sinc({x})",
            "{x} ** 2",
            "{x} ** 3",
            "({x}.abs() + 1) ** 0.5",
            "({x}.abs() + 1) ** -1.5",
            "{x}.square()",
            "torch.lgamma({x}.abs() + 1)",
            "torch.digamma({x}.abs() + 1)",
            "torch.logit(torch.sigmoid({x}.clamp(-2, 2)))",
            "torch.asin({x}.clamp(-0.9, 0.9))",
            "torch.acos({x}.clamp(-0.9, 0.9))",
            "torch.atanh({x}.clamp(-0.9, 0.9))",
            "torch.acosh({x}.abs() + 1.5)",
            "torch.special.i0({x}.clamp(-3, 3))",
            "torch.special.entr({x}.abs())",
            "torch.deg2rad({x})",
        )
        # Of infinity eager mode makes NaN in some of its kernels and infinity in others.
        if "gelu" in form and not x.finite:
            return
        build.add(form.format(x=x.name), exact=False)


def exact_unary(build: Builder) -> None:
    x = build.pick()
    assert x is not None
    forms = ["torch.logical_not({x})", "torch.isnan({x})", "{x}.bool()"]
    if not x.boolean:
        forms += [
            "-{x}",
            "{x}.abs()",
            "F.relu({x})",
            "{x}.clamp(-1, 1)",
            "{x}.clamp(min=0)",
            "torch.sign({x})",
            "+{x}",
            "torch.signbit({x})",
            "torch.isinf({x})",
            "torch.isfinite({x})",
            "{x}.clamp(max=1)",
            "F.relu6({x})",
            "F.hardtanh({x})",
            "F.threshold({x}, 0, 1)",
        ]
    if x.floating:
        forms += ["{x}.nan_to_num()", "{x}.nan_to_num(1.0, 2.0, -2.0)", "F.softshrink({x}, 0)", "F.hardshrink({x})"]
    else:
        forms += ["~{x}"]
    form = build.one(*forms)
    continuous = ("-{x}", "+{x}", "abs", "relu", "clamp", "softshrink", "hardtanh")
    if not x.exact and not any(word in form for word in continuous):
        return
    build.add(form.format(x=x.name), exact=x.exact)


def binary(build: Builder) -> None:
    x, y = build.pick(), build.pick()
    assert x is not None
    assert y is not None
    form = build.one(
        "{x} + {y}",
        "{x} * {y}",
        "torch.maximum({x}, {y})",
        "torch.minimum({x}, {y})",
        "{x} - {y}",
        "torch.fmax({x}, {y})",
        "torch.fmin({x}, {y})",
        "torch.add({x}, {y}, alpha=2)",
        "torch.sub({x}, {y}, alpha=3)",
        "torch.hypot({x}, {y})",
        "torch.addcmul({x}, {x}, {y}, value=2)",
        "torch.lerp({x}, {y}, 0.3)",
        "torch.square({x} - {y})",
        "torch.clamp({x}, {y}, {y} + 1)",
        "torch.logaddexp({x}, {y})",
        "torch.copysign({x}, {y})",
        "torch.rsub({x}, {y})",
        "torch.atan2({x}, {y}.abs() + 1)",
        "torch.heaviside({x}, {y})",
        "torch.xlogy({x}, {y}.abs() + 1)",
    )
    jumps = ("copysign", "heaviside")
    if any(word in form for word in jumps) and not (x.exact and y.exact):
        return
    selects = any(word in form for word in ("imum", "fm", *jumps))
    exact = x.exact and y.exact and (selects or not (x.floating or y.floating)) and "hypot" not in form
    if not (x.floating or y.floating) and any(word in form for word in ("atan2", "logaddexp", "xlogy", "lerp")):
        exact = False
    build.add(form.format(x=x.name, y=y.name), exact=exact)


def with_number(build: Builder) -> None:
    x = build.pick()
    assert x is not None
    form = build.one(
        "{x} + 2",
        "{x} * 3",
        "{x} - 1.5",
        "1 - {x}",
        "{x} * 0.5",
        "{x} + True",
        "2 / ({x}.abs() + 1)",
        "{x} / 2",
        "{x} * -1",
        "torch.maximum({x}, {x} * 2)",
        "torch.mul({x}, 2)",
        "{x}.add(1, alpha=2)",
        "torch.clamp({x}, -2, 2.5)",
        "torch.where({x} == {x}, {x}, 0)",
    )
    whole = not x.floating and "." not in form and "/" not in form
    build.add(form.format(x=x.name), exact=x.exact and whole)


def divide(build: Builder) -> None:
    x, y = build.pick(), build.pick()
    if x is not None and y is not None:
        form = build.one(
            "{x} / ({y}.abs() + 1)", "torch.true_divide({x}, {y}.abs() + 1)", "torch.addcdiv({x}, {x}, {y}.abs() + 1)"
        )
        build.add(form.format(x=x.name, y=y.name), exact=False)


def remainder(build: Builder) -> None:
    x, y = (build.pick(lambda value: value.exact and not value.boolean) for _ in range(2))
    if x is not None and y is not None:
        divisor = build.one("2", "-3", "0.75", "0.1", y.name)
        form = build.one(
            "{x} % {n}",
            "torch.fmod({x}, {n})",
            "{x} // {n}",
            "torch.div({x}, {n}, rounding_mode='trunc')",
            "torch.div({x}, {n}, rounding_mode='floor')",
        )
        exact = "." not in divisor and not x.floating and not (divisor == y.name and y.floating)
        build.add(form.format(x=x.name, n=divisor), exact=exact)


def compare(build: Builder) -> None:
    x, y = build.pick(lambda value: value.exact), build.pick(lambda value: value.exact)
    if x is not None and y is not None:
        operator = build.one("<", "<=", "==", "!=", ">", ">=")
        other = build.one(y.name, y.name, "0", "1", "-2", "0.5")
        build.add(f"{x.name} {operator} {other}", exact=True)


def logical(build: Builder) -> None:
    x, y = build.pick(lambda value: value.exact), build.pick(lambda value: value.exact)
    if x is not None and y is not None:
        build.add(f"torch.logical_{build.one('and', 'or', 'xor')}({x.name}, {y.name})", exact=True)


def round_off(build: Builder) -> None:
    x = build.pick(lambda value: value.exact and value.floating)
    if x is not None:
        form = build.one(
            "{x}.floor()", "{x}.ceil()", "{x}.round()", "{x}.trunc()", "{x}.frac()", "{x}.round(decimals=1)"
        )
        build.add(form.format(x=x.name), exact="decimals" not in form and "frac" not in form)


def integer(build: Builder) -> None:
    x, y = (build.pick(lambda value: not value.floating) for _ in range(2))
    if x is not None and y is not None:
        form = build.one(
            "{x} & {y}",
            "{x} | {y}",
            "{x} ^ {y}",
            "{x} // ({y}.abs() + 1)",
            "{x} % ({y}.abs() + 1)",
            "torch.fmod({x}, {y}.abs() + 1)",
            "({x} + 0) << ({y} & 7)",
            "({x} + 0) >> ({y} & 7)",
            "torch.gcd({x}, {y})",
            "{x} ** ({y} & 3)",
            "torch.div({x}, {y}.abs() + 1, rounding_mode='trunc')",
            "{x} & 5",
            "{x} | 2",
            "{x} ^ -1",
            "{x} ** 2",
            "torch.lcm({x}, {y})",
        )
        build.add(form.format(x=x.name, y=y.name), exact=True)


def where(build: Builder) -> None:
    condition = build.pick(lambda value: value.boolean and value.exact)
    x, y = build.pick(), build.pick()
    if condition is not None and x is not None and y is not None:
        form = build.one(
            "torch.where({c}, {x}, {y})",
            "{x}.masked_fill({c}, 2)",
            "{x}.masked_fill({c}, float('-inf'))",
            "torch.where({c}, {x}, 1)",
            "torch.where({c}, 0.5, {x})",
        )
        if "inf" in form:
            form = f"torch.softmax({form}, -1).nan_to_num()" if x.floating and x.shape else "{x} + 0"
        exact = x.exact and (y.exact or "{y}" not in form) and "softmax" not in form and "+" not in form
        build.add(form.format(c=condition.name, x=x.name, y=y.name), exact=exact)


def convert(build: Builder) -> None:
    x = build.pick()
    assert x is not None
    dtype = build.draw(st.sampled_from((*FLOATS, *INTEGERS, torch.bool)))
    if not dtype.is_floating_point and x.floating and not (x.exact and x.whole):
        return
    form = build.one("{x}.to({t})", "{x}.type({t})", "{x}.to({t}, copy=True)", "({x} * 1).to({t})")
    if "*" in form and x.floating and not dtype.is_floating_point:
        return
    build.add(form.format(x=x.name, t=dtype), exact=x.exact)


def create(build: Builder) -> None:
    x = build.pick()
    assert x is not None
    form = build.one(
        "torch.zeros_like({x})",
        "torch.ones_like({x})",
        "torch.full_like({x}, 2)",
        "{x}.new_zeros(2, 3)",
        "{x}.new_full((3,), 1)",
        "torch.arange(5, device={x}.device)",
        "torch.eye(3, device={x}.device)",
        "torch.full((2, 2), 0.5, device={x}.device)",
        "torch.ones(3, dtype={x}.dtype, device={x}.device)",
        "torch.arange(6, 0, -2, dtype={x}.dtype, device={x}.device)",
        "torch.tril(torch.ones(4, 4, device={x}.device))",
        "torch.tensor([1, 2, 3], device={x}.device)",
        "torch.tensor(2.5, device={x}.device)",
        "{x}.new_tensor([1, 0])",
    )
    build.add(form.format(x=x.name), exact=True)


FAMILIES = (
    smooth,
    smooth,
    exact_unary,
    binary,
    binary,
    with_number,
    divide,
    remainder,
    compare,
    logical,
    round_off,
    integer,
    where,
    convert,
    create,
)
