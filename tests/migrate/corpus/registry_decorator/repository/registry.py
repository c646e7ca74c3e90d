_models = {}


def register_model(fn):
    _models[fn.__name__] = fn
    return fn


def create_model(name, **kwargs):
    return _models[name](**kwargs)
