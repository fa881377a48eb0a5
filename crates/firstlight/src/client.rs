//! A small HTTP client for `firstlight chat`: JSON in, JSON or server-sent events out.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, Uri, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;

/// A server that answers over plain HTTP.
pub struct Client {
    base: Uri,
    key: Option<String>,
}

impl Client {
    /// Talks to the server at `url`, such as `http://127.0.0.1:8000`.
    pub fn new(url: &str, key: Option<String>) -> anyhow::Result<Self> {
        let base: Uri =
            url.trim_end_matches('/').parse().with_context(|| format!("--url {url} is not a URL"))?;
        if base.scheme_str() != Some("http") || base.host().is_none() {
            bail!("--url {url} must look like http://HOST:PORT");
        }
        Ok(Client { base, key })
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let host = self.base.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.base.port_u16().unwrap_or(80);
        let stream = tokio::net::TcpStream::connect((host, port)).await.with_context(|| {
            format!("no server answers at {}; start one with `firstlight serve`", self.base)
        })?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Response<Incoming>> {
        let authority = self.base.authority().map(ToString::to_string).unwrap_or_default();
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, authority);
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let response = self.connect().await?.send_request(request.body(Full::new(bytes))?).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        let error: Value = serde_json::from_slice(&body).unwrap_or_default();
        match error["error"]["message"].as_str() {
            Some(message) => bail!("{message} ({status})"),
            None => bail!("the server answered {status} to {path}"),
        }
    }

    /// `GET path` as JSON.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let response = self.send(Method::GET, path, None).await?;
        Ok(serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?)
    }

    /// `GET path` as JSON, tried again until `patience` is over.
    pub async fn get_patiently(&self, path: &str, patience: Duration) -> anyhow::Result<Value> {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            match self.get(path).await {
                Ok(value) => return Ok(value),
                Err(error) if tokio::time::Instant::now() >= deadline => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// `POST path`, calling `on_event` with the data of each server-sent event until `[DONE]`.
    pub async fn stream(
        &self,
        path: &str,
        body: &Value,
        mut on_event: impl FnMut(Value) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut answer = self.send(Method::POST, path, Some(body)).await?.into_body();
        let mut buffer = Vec::new();
        while let Some(frame) = answer.frame().await {
            buffer.extend_from_slice(frame?.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = buffer.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = buffer.drain(..end + 2).collect();
                let event = String::from_utf8(event)?;
                for data in event.lines().filter_map(|line| line.strip_prefix("data:")) {
                    if data.trim() == "[DONE]" {
                        return Ok(());
                    }
                    let value: Value = serde_json::from_str(data)?;
                    if let Some(message) = value["error"]["message"].as_str() {
                        bail!("{message}");
                    }
                    on_event(value)?;
                }
            }
        }
        bail!("the server closed the stream before its end")
    }
}
