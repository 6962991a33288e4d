# Duetto with PyTorch, JAX and every environment of its extras:
#   docker build -t duetto .
#   docker run --rm -v "$PWD/runs:/work/runs" duetto train td3 HalfCheetah-v5 --steps 100000
FROM python:3.11-slim

# OpenGL without a display, for videos of MuJoCo; a compiler and SWIG for Box2D and PyBullet, which are built.
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential libegl1 libgl1 libglib2.0-0 swig \
    && rm -rf /var/lib/apt/lists/*
ENV MUJOCO_GL=egl PIP_NO_CACHE_DIR=1

WORKDIR /duetto
COPY pyproject.toml constraints.txt README.md LICENSE CHANGELOG.md ./
COPY src src
RUN pip install -c constraints.txt ".[all]"

RUN useradd --create-home duetto && mkdir -p /work/runs && chown -R duetto /work
USER duetto
WORKDIR /work
ENTRYPOINT ["duetto"]
CMD ["--help"]
