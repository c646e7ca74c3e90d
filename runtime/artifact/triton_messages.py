"""The messages of Triton's `config.pbtxt` and of the Open Inference Protocol over gRPC. Torch-free.

They are made from Triton's own description, `triton_messages.binpb`, as a FileDescriptorSet: `tritonclient` has the same as
generated modules, but brings 35 MB with it. The pool is one of our own, so that both may be imported into one process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper  # what generated modules have their enums from
from google.protobuf.message_factory import GetMessageClass

POOL = DescriptorPool()
for _file in FileDescriptorSet.FromString(Path(__file__).with_suffix(".binpb").read_bytes()).file:
    POOL.AddSerializedFile(_file.SerializeToString())


class _File:
    """What a generated module of one .proto file has: its messages, its enums, their values, and DESCRIPTOR."""

    def __init__(self, name: str) -> None:
        self.DESCRIPTOR: Any = POOL.FindFileByName(name)
        for enum in self.DESCRIPTOR.enum_types_by_name.values():
            setattr(self, enum.name, EnumTypeWrapper(enum))
            for value in enum.values:
                setattr(self, value.name, value.number)
        for message in self.DESCRIPTOR.message_types_by_name.values():
            setattr(self, message.name, GetMessageClass(message))

    def __getattr__(self, name: str) -> Any:  # for type checkers: what there is, __init__ has set
        raise AttributeError(f"{self.DESCRIPTOR.name} has no {name}")


model_config = _File("model_config.proto")
service = _File("grpc_service.proto")
