"""Statements that reduce, scan, sort or normalise along dimensions."""

from .builder import Builder


def reduce(build: Builder) -> None:
    x = build.pick(lambda value: value.rank > 0)
    if x is None:
        return
    axis, keep = build.axis(x), build.flag()
    where = build.one(f"dim={axis}", f"dim={axis}", f"dim=({', '.join(map(str, range(x.rank)))},)")
    if x.floating:
        form = build.one(
            "sum",
            "mean",
            "amax",
            "amin",
            "var",
            "logsumexp",
            "norm",
            "prod",
            "std",
            "nansum",
            "nanmean",
            "count_nonzero",
            "any",
            "all",
        )
        if form in ("var", "std") and x.shape[axis] < 3:
            return
        if form in ("count_nonzero", "any", "all") and not x.exact:
            return
        exact = x.exact and form in ("amax", "amin", "count_nonzero", "any", "all")
    elif x.boolean:
        form, exact = build.one("any", "all", "sum", "count_nonzero"), True
    else:
        form, exact = build.one("sum", "amax", "amin", "any", "all", "count_nonzero", "prod"), True
    if form == "prod":
        where = f"dim={axis}"
    options = "" if form == "count_nonzero" else f", keepdim={keep}"
    build.add(f"{x.name}.{form}({where}{options})", exact=exact and x.exact)


def reduce_all(build: Builder) -> None:
    x = build.pick()
    assert x is not None
    form = build.one(
        "{x}.sum()",
        "{x}.max()",
        "{x}.min()",
        "{x}.any()",
        "{x}.all()",
        "{x}.prod()",
        "{x}.argmax()",
        "{x}.argmin()",
        "{x}.sum(dtype=torch.float32)",
        "torch.count_nonzero({x})",
        "torch.mean({x}, dtype=torch.float32)",
        "{x}.float().var(correction=0)",
        "{x}.float().norm()",
        "{x}.float().norm(1)",
        "{x}.aminmax()[0]",
        "torch.std_mean({x}.float(), correction=0)[1]",
        "torch.linalg.vector_norm({x}.float(), 3)",
        "torch.dist({x}.float(), {x}.float() + 1)",
        "{x}.trace()",
    )
    jumps = any(word in form for word in ("any", "all", "arg", "count"))
    if jumps and not x.exact:
        return
    exact = jumps or any(word in form for word in (".max", ".min", "aminmax"))
    exact = exact or (not x.floating and form in ("{x}.sum()", "{x}.prod()", "{x}.trace()"))
    build.add(form.format(x=x.name), exact=x.exact and exact)


def select_extreme(build: Builder) -> None:
    x = build.pick(lambda value: value.exact and value.rank > 0)
    if x is None:
        return
    axis = build.axis(x)
    k = build.number(1, max(x.shape[axis], 1))
    form = build.one(
        "argmax(dim={d})",
        "argmin(dim={d})",
        "max(dim={d}).values",
        "min(dim={d}).values",
        "max(dim={d}).indices",
        "sort(dim={d}, stable=True).values",
        "sort(dim={d}, descending=True, stable=True).indices",
        "topk({k}, dim={d}).values",
        "topk({k}, dim={d}, largest=False).values",
        "cummax(dim={d}).values",
        "cummin(dim={d}).values",
        "argsort(dim={d}, stable=True)",
        "kthvalue({k}, dim={d}).values",
        "median(dim={d}).values",
        "nanmedian(dim={d}).values",
        "median()",
        "argmax(dim={d}, keepdim=True)",
        "cummax(dim={d}).indices",
        "min(dim={d}, keepdim=True)[0]",
        "aminmax(dim={d})[1]",
        "msort()",
    )
    if "median(dim" in form and 0 in x.example.stride():  # the CPU's kernel reads beyond the memory of the tensor
        return
    build.add(f"{x.name}.{form.format(d=axis, k=k)}", exact=True)


def scan(build: Builder) -> None:
    x = build.pick(lambda value: value.rank > 0)
    if x is not None:
        form = build.one(
            "cumsum({d})", "cumprod({d})", "diff(dim={d})", "cumsum({d}, dtype=torch.float32)", "logcumsumexp({d})"
        )
        build.add(f"{x.name}.{form.format(d=build.axis(x))}", exact=x.exact and not x.floating and "float" not in form)


def search(build: Builder) -> None:
    x = build.pick(lambda value: value.exact and not value.boolean)
    y = build.pick(lambda value: value.exact and value.rank == 1 and not value.boolean)
    if x is not None and y is not None:
        form = build.one(
            "torch.bucketize({x}, {y}.sort().values)",
            "torch.searchsorted({y}.sort().values, {x}, right=True)",
            "torch.isin({x}, {y})",
        )
        build.add(form.format(x=x.name, y=y.name), exact=True)


def normalise(build: Builder) -> None:
    x = build.pick(lambda value: value.floating and value.rank > 0 and value.shape[-1] > 1)
    if x is not None:
        axis, last = build.axis(x), x.shape[-1]
        channels = x.shape[1] or 1 if x.rank > 1 else 1
        form = build.one(
            f"torch.softmax({{x}}, {axis})",
            f"torch.log_softmax({{x}}, {axis})",
            f"F.layer_norm({{x}}, ({last},))",
            f"F.rms_norm({{x}}, ({last},))",
            f"F.normalize({{x}}, dim={axis})",
            f"F.softmin({{x}}, {axis})",
            f"torch.softmax({{x}}, {axis}, dtype=torch.float32)",
            f"F.group_norm({{x}}, {channels})",
            "F.group_norm({x}, 1)",
            "F.instance_norm({x})",
            "F.batch_norm({x}, None, None, training=True)",
            f"F.batch_norm({{x}}, {{x}}.new_zeros({channels}), {{x}}.new_ones({channels}))",
            f"F.glu({{x}}, {axis})",
            "F.local_response_norm({x}, 2)",
            f"F.layer_norm({{x}}, ({last},), {{x}}.flatten()[:{last}], {{x}}.flatten()[-{last}:])",
        )
        build.add(form.format(x=x.name), exact=False)


FAMILIES = (reduce, reduce, reduce_all, select_extreme, select_extreme, scan, search, normalise, normalise)
