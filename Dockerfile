FROM python:3.12-slim
WORKDIR /app
COPY . .
RUN pip install --no-cache-dir ".[cpu,hf,serve]" && useradd --create-home --uid 10001 hebblm && install -d -o hebblm /data
USER hebblm
ENV HEBBLM_CACHE=/data/cache
VOLUME /data
EXPOSE 8080
ENTRYPOINT ["hebblm", "serve", "--host", "0.0.0.0", "--api-key-file", "/data/key.txt", "--memory", "/data/memories"]
CMD ["tiny-pydoc-raw"]
