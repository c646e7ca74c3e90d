"""BentoML's services, as far as one of images meets them: classes with `@service` and `@api`, and older ones with runners.

The store of models is not here: what a script saves in it, it finds again, and anything else is missing.
"""

# mypy: ignore-errors
# The names, and what their arguments may be, are those of another library.
import os
import tempfile


class BentoMLException(Exception): ...


class NotFound(BentoMLException): ...


_SAVED = {}


def service(inner=None, **_):
    """A decorator of classes, with arguments or without."""

    def decorate(kind):
        kind.__bentoml_service__ = True
        return kind

    return decorate(inner) if inner is not None else decorate


def api(func=None, **_):
    """A decorator of the methods that answer requests."""

    def decorate(function):
        function.__bentoml_api__ = True
        return function

    return decorate(func) if func is not None else decorate


def on_startup(func):
    return func


on_deployment = on_shutdown = task = on_startup


def depends(on=None, **_):
    """A service that another one holds."""
    return on() if isinstance(on, type) else on


def mount_asgi_app(*_, **__):
    return lambda kind: kind


class Runner:
    """A model of the store behind `run`, which calls it with what it is given."""

    def __init__(self, model):
        self.model = model
        self.name = "runner"

    def init_local(self, **_): ...

    def run(self, *args, **named):
        import torch

        if hasattr(self.model, "eval"):
            self.model.eval()
        with torch.inference_mode():
            args = [torch.from_numpy(item) if type(item).__module__ == "numpy" else item for item in args]
            return self.model(*args, **named)

    async def async_run(self, *args, **named):
        return self.run(*args, **named)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class Model:
    def __init__(self, tag, value=None, path=None, metadata=None, custom_objects=None):
        self.tag, self.value, self.path = tag, value, path
        self.custom_objects = custom_objects or {}
        self.info = type("Info", (), {"metadata": metadata or {}, "labels": {}})()

    def to_runner(self, **_):
        return Runner(self.value)

    def load_model(self, **_):
        return self.value

    def path_of(self, item):
        return os.path.join(self.path or tempfile.gettempdir(), item.lstrip("/"))


class _Framework:
    """`bentoml.pytorch` and the like: models by their tags."""

    def save_model(self, name, model=None, metadata=None, custom_objects=None, **_):
        _SAVED[str(name)] = Model(str(name), model, metadata=metadata, custom_objects=custom_objects)
        return _SAVED[str(name)]

    def get(self, tag, **_):
        name = str(getattr(tag, "tag", tag)).partition(":")[0]
        if name not in _SAVED:
            raise NotFound(
                f"the model {tag} lies in BentoML's store, which is no part of the repository; "
                "take the script that saves it there with --entry"
            )
        return _SAVED[name]

    def load_model(self, tag, **_):
        return self.get(tag).value

    def load_runner(self, tag, **_):
        return Runner(self.get(tag).value)


pytorch = pytorch_lightning = torchscript = transformers = models = fastai = keras = tensorflow = onnx = _Framework()
picklable_model = sklearn = pytorch


class Service:
    """The older kind: functions with `@svc.api`, over runners."""

    def __init__(self, name="", runners=(), models=(), **_):
        self.name, self.runners, self.apis = name, list(runners), {}

    def api(self, input=None, output=None, route=None, **_):  # noqa: A002 - its name
        def decorate(function):
            function.__bentoml_input__ = type(input).__name__
            self.apis[route or function.__name__] = function
            return function

        return decorate

    def mount_asgi_app(self, *_, **__): ...

    def add_asgi_middleware(self, *_, **__): ...


class _Described:
    """What goes in or comes out, of which only the class counts here."""

    def __init__(self, *_, **__): ...

    @classmethod
    def from_sample(cls, *_, **__):
        return cls()


class Image(_Described): ...


class JSON(_Described): ...


class File(_Described): ...


class Text(_Described): ...


class NumpyNdarray(_Described): ...


class Multipart(_Described): ...


class PandasDataFrame(_Described): ...


class Context: ...


class Field(_Described): ...
