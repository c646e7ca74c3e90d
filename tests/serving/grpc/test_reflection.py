"""gRPC tools learn the methods and messages from the server itself, and can call them with nothing else."""

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

SERVICE = "inference.GRPCInferenceService"


def test_a_client_without_stubs_calls_a_method(server):
    with grpc.insecure_channel(server.grpc) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)

        def ask(**request):
            (answer,) = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**request)]))
            return answer

        services = {service.name for service in ask(list_services="").list_services_response.service}
        assert services == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
        pool, known = descriptor_pool.DescriptorPool(), set()

        def learn(answer):
            for data in answer.file_descriptor_response.file_descriptor_proto:
                file = FileDescriptorProto.FromString(data)
                for dependency in file.dependency:
                    if dependency not in known:
                        learn(ask(file_by_filename=dependency))
                if file.name not in known:
                    known.add(file.name)
                    pool.Add(file)

        learn(ask(file_containing_symbol=SERVICE))
        method = pool.FindServiceByName(SERVICE).methods_by_name["ServerMetadata"]
        request, response = (message_factory.GetMessageClass(kind) for kind in (method.input_type, method.output_type))
        call = channel.unary_unary(
            f"/{SERVICE}/ServerMetadata",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        assert call(request()).name == "headrace"
        assert ask(file_containing_symbol="nope").error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
