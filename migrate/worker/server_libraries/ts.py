"""TorchServe's handlers and context, as far as a handler of images meets them: the stages and their order are the library's.

After ts 0.12: `torch_handler.base_handler`, `vision_handler`, `image_classifier`, `context`, `utils.util`. Nothing is compiled,
profiled or explained here, and metrics go nowhere.
"""

# mypy: ignore-errors
# The names, and what their arguments may be, are those of another library.
import base64
import importlib
import inspect
import io
import itertools
import json
import os

import torch


class PredictionException(Exception):
    def __init__(self, message, error_code=500):
        self.message, self.error_code = message, error_code
        super().__init__(message)

    def __str__(self):
        return f"{self.message} : {self.error_code}"


class Metrics:
    """Takes every measurement and keeps none."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: self


class Context:
    """What a handler is told of its model, its worker and the requests at hand."""

    def __init__(
        self,
        model_name,
        model_dir,
        manifest,
        batch_size,
        gpu,
        mms_version,
        limit_max_image_pixels=True,
        metrics=None,
        model_yaml_config=None,
    ):
        self.model_name, self.manifest, self.metrics, self.model_yaml_config = model_name, manifest, metrics, model_yaml_config
        self._system_properties = {
            "model_dir": model_dir,
            "gpu_id": gpu,
            "batch_size": batch_size,
            "server_name": "MMS",
            "server_version": mms_version,
            "limit_max_image_pixels": limit_max_image_pixels,
        }
        self.request_ids = None
        self.request_processor = None
        self.stopping_criteria = None
        self._response_headers = {}

    @property
    def system_properties(self):
        return self._system_properties

    def get_request_id(self, idx=0):
        return None if self.request_ids is None else self.request_ids.get(idx)

    def get_all_request_header(self, idx=0):
        return {"Content-Type": "application/octet-stream"}

    def get_request_header(self, idx, key):
        return self.get_all_request_header(idx).get(key)

    def get_response_headers(self, idx=0):
        return self._response_headers.setdefault(idx, {})

    def get_response_content_type(self, idx=0):
        return self.get_response_headers(idx).get("content-type")

    def set_response_content_type(self, idx, value):
        self.set_response_header(idx, "content-type", value)

    def set_response_header(self, idx, key, value):
        self.get_response_headers(idx)[key] = value

    def set_response_status(self, code=200, phrase="", idx=0): ...

    def set_all_response_status(self, code=200, phrase=""): ...


def timed(function):
    return function


def list_classes_from_module(module, parent_class=None):
    found = inspect.getmembers(module, lambda item: inspect.isclass(item) and item.__module__ == module.__name__)
    return [item for _, item in found if parent_class is None or issubclass(item, parent_class)]


def load_label_mapping(mapping_file_path):
    """The names of classes by their numbers as text; the last of several names of one."""
    if not os.path.isfile(mapping_file_path):
        return None
    with open(mapping_file_path, encoding="utf-8") as file:
        mapping = json.load(file)
    if not isinstance(mapping, dict):
        raise Exception('index->name JSON mapping should be in "class": "label" format.')
    if isinstance(mapping.get("object_type_names"), list):
        return {str(number): name for number, name in enumerate(mapping["object_type_names"])}
    return {key: value[-1] if isinstance(value, list) else value for key, value in mapping.items()}


def map_class_to_label(probs, mapping=None, lbl_classes=None):
    if lbl_classes is None:
        lbl_classes = itertools.repeat(range(len(probs[0])), len(probs))
    rows = zip(lbl_classes, probs, strict=False)
    return [
        {(mapping[str(number)] if mapping is not None else str(number)): value for number, value in zip(*row, strict=False)}
        for row in rows
    ]


class BaseHandler:
    """Loads the model of an archive, and takes requests through preprocess, inference and postprocess."""

    def __init__(self):
        self.model = self.mapping = self.device = self.context = self.model_pt_path = self.manifest = self.map_location = None
        self.initialized = self.explain = False
        self.target = 0
        self.profiler_args = {}

    def initialize(self, context):
        if context is not None and hasattr(context, "model_yaml_config"):
            self.model_yaml_config = context.model_yaml_config
        properties = context.system_properties
        cuda = torch.cuda.is_available() and properties.get("gpu_id") is not None
        self.map_location = "cuda" if cuda else "cpu"
        self.device = torch.device(f"cuda:{properties.get('gpu_id')}" if cuda else "cpu")
        self.manifest = context.manifest
        model_dir = properties.get("model_dir")
        self.model_pt_path = None
        if "serializedFile" in self.manifest["model"]:
            self.model_pt_path = os.path.join(model_dir, self.manifest["model"]["serializedFile"])
        model_file = self.manifest["model"].get("modelFile", "")
        if model_file:
            self.model = self._load_pickled_model(model_dir, model_file, self.model_pt_path)
            self.model.to(self.device)
            self.model.eval()
        elif self.model_pt_path is not None and self.model_pt_path.endswith(".pt"):
            self.model = self._load_torchscript_model(self.model_pt_path)
            self.model.eval()
        else:
            raise RuntimeError(
                f"No model weights could be loaded from {self.model_pt_path}: no model file is there, nor TorchScript (.pt)"
            )
        self.mapping = load_label_mapping(os.path.join(model_dir, "index_to_name.json"))
        self.initialized = True

    def _load_torchscript_model(self, model_pt_path):
        return torch.jit.load(model_pt_path, map_location=self.device)

    def _load_pickled_model(self, model_dir, model_file, model_pt_path):
        if not os.path.isfile(os.path.join(model_dir, model_file)):
            raise RuntimeError("Missing the model.py file")
        classes = list_classes_from_module(importlib.import_module(model_file.split(".")[0]))
        if len(classes) != 1:
            raise ValueError(f"Expected only one class as model definition. {classes}")
        model = classes[0]()
        if model_pt_path:
            model.load_state_dict(torch.load(model_pt_path, map_location=self.device))
        return model

    def preprocess(self, data):
        return torch.as_tensor(data, device=self.device)

    def inference(self, data, *args, **kwargs):
        with torch.inference_mode():
            return self.model(data.to(self.device), *args, **kwargs)

    def postprocess(self, data):
        return data.tolist()

    def handle(self, data, context):
        self.context = context
        return self.postprocess(self.inference(self.preprocess(data)))

    def _is_explain(self):
        return False

    def _is_describe(self):
        return False


class VisionHandler(BaseHandler):
    """Opens each request's image and brings it through `image_processing`."""

    def preprocess(self, data):
        from PIL import Image

        images = []
        for row in data:
            image = row.get("data") or row.get("body")
            if isinstance(image, str):
                image = base64.b64decode(image)
            if isinstance(image, bytes | bytearray):
                image = self.image_processing(Image.open(io.BytesIO(image)))
            else:
                image = torch.FloatTensor(image)
            images.append(image)
        return torch.stack(images).to(self.device)


def __getattr__(name):
    """The image classifier takes torchvision, which not every handler needs."""
    if name != "ImageClassifier":
        raise AttributeError(f"module 'ts' has no attribute {name!r}")
    from torchvision import transforms

    class ImageClassifier(VisionHandler):
        topk = 5
        image_processing = transforms.Compose(
            [
                transforms.Resize(256),
                transforms.CenterCrop(224),
                transforms.ToTensor(),
                transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
            ]
        )

        def set_max_result_classes(self, topk):
            self.topk = topk

        def get_max_result_classes(self):
            return self.topk

        def postprocess(self, data):
            values, numbers = torch.topk(torch.softmax(data, dim=1), self.topk, dim=1)
            return map_class_to_label(values.tolist(), self.mapping, numbers.tolist())

    globals()["ImageClassifier"] = ImageClassifier
    return ImageClassifier
