# NVIDIA Triton with what our preprocessing models need. Context: the root of the repository.
#
#   docker build --file docker/triton.Dockerfile --tag headrace:triton .
#
# docker/README.md says how to fill the digest.
ARG TRITON_IMAGE=nvcr.io/nvidia/tritonserver:25.06-py3
ARG TRITON_DIGEST=

FROM ${TRITON_IMAGE}${TRITON_DIGEST:+@${TRITON_DIGEST}} AS base


FROM base AS build
COPY docker/locks/triton.txt /requirements.txt
# By Triton's own Python, whose stub will import them; into a folder of their own, which leaves the image's packages alone.
RUN python3 -m pip install --no-cache-dir --no-deps --only-binary :all: --require-hashes \
    --target /opt/headrace/python --requirement /requirements.txt


FROM base AS triton
LABEL org.opencontainers.image.title="headrace-triton" \
      org.opencontainers.image.description="NVIDIA Triton Inference Server for model repositories that headrace wrote"
COPY docker/health.py /opt/health.py
COPY --from=build /opt/headrace/python /opt/headrace/python
# For TensorRT's engines: headrace triton write MODELS --tensorrt --engine-cache /var/cache/headrace
RUN install --directory --mode=1777 /var/cache/headrace
ENV PYTHONPATH=/opt/headrace/python \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp
# The image has this user, triton-server.
USER 1000:1000
WORKDIR /tmp
EXPOSE 8000 8001 8002
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=5m --retries=3 CMD ["python3", "-I", "/opt/health.py"]
ENTRYPOINT ["tritonserver"]
CMD ["--model-repository=/models", "--exit-timeout-secs=30", "--metrics-config=summary_latencies=true"]
