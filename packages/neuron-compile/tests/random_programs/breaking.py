"""Statements whose result's shape depends on values: they break the graph."""

from .builder import Builder


def data_dependent(build: Builder) -> None:
    x = build.pick(lambda value: value.exact)
    if x is None:
        return
    mask = build.pick(lambda value: value.boolean and value.exact and value.shape == x.shape)
    forms = ["{x}.nonzero()", "torch.unique({x})", "{x}.argwhere()", "torch.where({x})[-1]"]
    if mask is not None:
        forms += [f"{{x}}[{mask.name}]", f"torch.masked_select({{x}}, {mask.name})"]
    if x.example.numel():
        forms += ["{x} + {x}.flatten()[0].item()", "{x}.clone() if {x}.flatten()[0] > 0 else -{x}.float()"]
    form = build.one(*forms)
    exact = not ("item" in form and x.floating)
    build.add(form.format(x=x.name), exact=exact)


FAMILIES = (data_dependent,)
