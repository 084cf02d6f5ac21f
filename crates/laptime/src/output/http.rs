//! A minimal HTTP/1.1 server for `laptime view`: one request per connection, without a body.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::{net::TcpStream, time::Duration};

/// Maximum size of a request, in bytes.
const LONGEST_HEAD: u64 = 8 << 10;

/// A peer that neither sends nor receives for this long is disconnected.
const PATIENCE: Duration = Duration::from_secs(10);

/// The head of a request. Header names are in lower case.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// The path with the query.
    pub target: String,
    headers: Vec<(String, String)>,
}

impl Request {
    /// Reads the head of a request; the error is the status to answer with.
    pub fn read(from: impl Read) -> Result<Self, u16> {
        let mut lines = BufReader::new(from.take(LONGEST_HEAD));
        let mut line = || -> Result<String, u16> {
            let mut line = String::new();
            lines.read_line(&mut line).map_err(|_| 400_u16)?;
            match line.strip_suffix("\r\n") {
                Some(text) => Ok(text.to_owned()),
                None => Err(if lines.get_ref().limit() == 0 { 431 } else { 400 }),
            }
        };
        let first = line()?;
        let mut words = first.split(' ');
        let (Some(method), Some(target), Some("HTTP/1.1"), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(400);
        };
        let (method, target) = (method.to_owned(), target.to_owned());
        let mut headers = Vec::new();
        loop {
            let line = line()?;
            if line.is_empty() {
                return Ok(Self { method, target, headers });
            }
            let (name, value) = line.split_once(':').ok_or(400_u16)?;
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
                return Err(400);
            }
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// The value of a header; none if it is missing or given more than once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        found.next().filter(|_| found.next().is_none()).map(|(_, value)| value.as_str())
    }

    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(known, _)| known == name)
    }
}

#[derive(Debug)]
pub struct Response<'a> {
    pub status: u16,
    pub kind: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: std::borrow::Cow<'a, [u8]>,
}

impl Response<'_> {
    pub fn text(status: u16, text: &str) -> Self {
        let body = format!("{text}\n").into_bytes().into();
        Self { status, kind: "text/plain; charset=utf-8", headers: Vec::new(), body }
    }

    /// Sends the response with headers against caching, framing and MIME sniffing.
    pub fn send(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { status, kind, headers, body } = self;
        write!(
            out,
            "HTTP/1.1 {status} {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
             Referrer-Policy: no-referrer\r\n",
            if *status < 400 { "OK" } else { "Refused" },
            body.len()
        )?;
        headers.iter().try_for_each(|(name, value)| write!(out, "{name}: {value}\r\n"))?;
        out.write_all(b"\r\n")?;
        out.write_all(body)?;
        out.flush()
    }
}

/// Reads a request and sends the response. Errors of the connection are ignored.
pub fn serve<'a>(mut stream: TcpStream, answer: impl FnOnce(&Request) -> Response<'a>) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = stream.set_write_timeout(Some(PATIENCE));
    let response = match Request::read(&stream) {
        Ok(request) => answer(&request),
        Err(431) => Response::text(431, "the request is too long"),
        Err(status) => Response::text(status, "this is not a request that laptime understands"),
    };
    let _ = response.send(&mut stream);
    // Closing with unread bytes sends a reset, which may discard the response.
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = io::copy(&mut (&stream).take(LONGEST_HEAD), &mut io::sink());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Request, u16> {
        Request::read(text.as_bytes())
    }

    #[test]
    fn a_request_has_a_method_a_target_and_headers() {
        let request = read("GET /data?from=1 HTTP/1.1\r\nHost: a:1\r\nX-Token:  t \r\n\r\n").unwrap();
        assert_eq!((request.method.as_str(), request.target.as_str()), ("GET", "/data?from=1"));
        assert_eq!((request.header("host"), request.header("x-token")), (Some("a:1"), Some("t")));
        assert!(request.header("origin").is_none() && !request.has("origin"));
    }

    #[test]
    fn a_repeated_header_has_no_value() {
        let request = read("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").unwrap();
        assert!(request.header("host").is_none() && request.has("host"));
    }

    #[test]
    fn malformed_requests_are_refused() {
        for text in [
            "",
            "GET /\r\n\r\n",
            "GET / HTTP/1.0\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\n",
            "GET / HTTP/1.1\nHost: a\n\n",
            "GET / HTTP/1.1\r\n : a\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(read(text), Err(400), "{text:?}");
        }
        assert_eq!(read(&format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(9000))), Err(431));
        assert_eq!(read(&format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(9000))), Err(431));
    }
}
