//! `laptime view`: serves the page of a trace to a browser on this machine.
//!
//! Other programs and web pages on this machine can reach the port too. Therefore `/` is only a shell, all data needs the
//! token in the printed URL, the `Host` header must name this server (against DNS rebinding), and the only foreign origin
//! allowed is Perfetto's, for the trace only.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use std::{fs::File, thread};

use anyhow::Context;
use laptime_page::{Viewer, data::MOST_SPANS};
use laptime_trace::{Trace, format};

use crate::http::{self, Request, Response};
use crate::output::{read_trace, say};
use crate::{cli::Status, commands::page, trace_input::trace_of};

/// Look at a trace of any size in the browser
///
/// Serves the page of `laptime report` to this machine alone, on a free port. In a trace with more spans than a page
/// holds, zooming in loads the spans of the visible window. "Open in Perfetto" hands the trace to ui.perfetto.dev in the
/// browser; nothing is uploaded. Ctrl-C ends it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  laptime view trace.json.gz\n  laptime view runs/tour-20261116-093000 --open")]
pub struct Args {
    /// A trace, or the folder of a run with a trace
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
    /// Spans that the page holds at a time
    #[arg(long, value_name = "COUNT", default_value_t = MOST_SPANS, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1000..), hide = true)]
    most_spans: usize,
}

/// Maximum number of concurrent requests.
const MOST_REQUESTS: usize = 16;

const PERFETTO: &str = "https://ui.perfetto.dev";

const TOKEN: &str = "x-laptime-token";

pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let file = trace_of(&args.trace)?;
    let trace = read_trace(&file)?;
    let viewer = page::viewer(&args.trace, &file, &trace, args.most_spans)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot open a port on 127.0.0.1")?;
    let address = listener.local_addr().context("the port has no number")?;
    let server = Server { viewer, trace: &trace, file: &file, token: token()?, address };
    let is_ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_ended);
    ctrlc::set_handler(move || {
        flag.store(true, Ordering::SeqCst);
        // Wakes the accept loop.
        drop(TcpStream::connect(address));
    })
    .context("cannot listen for Ctrl-C")?;
    let url = format!("http://{address}/#{}", server.token);
    writeln!(out, "{url}")?;
    out.flush()?;
    say("Open this address in a browser on this machine. Ctrl-C ends it.");
    if args.open {
        page::open(Path::new(&url));
    }
    server.run(&listener, &is_ended)?;
    Ok(Status::Done)
}

/// 128 random bits.
fn token() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    let mut source = File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    source.read_exact(&mut bytes).context("cannot read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

struct Server<'a> {
    viewer: Viewer<'a>,
    trace: &'a Trace,
    file: &'a Path,
    token: String,
    address: SocketAddr,
}

impl Server<'_> {
    fn run(&self, listener: &TcpListener, is_ended: &AtomicBool) -> anyhow::Result<()> {
        let open = AtomicUsize::new(0);
        thread::scope(|scope| {
            for stream in listener.incoming() {
                if is_ended.load(Ordering::SeqCst) {
                    break;
                }
                // The peer closed the connection before it was accepted.
                let Ok(stream) = stream else { continue };
                let open = &open;
                if open.fetch_add(1, Ordering::SeqCst) >= MOST_REQUESTS {
                    open.fetch_sub(1, Ordering::SeqCst);
                    continue;
                }
                scope.spawn(move || {
                    http::serve(stream, |request| self.answer(request));
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Ok(())
    }

    fn answer(&self, request: &Request) -> Response<'_> {
        let own = [format!("127.0.0.1:{}", self.address.port()), format!("localhost:{}", self.address.port())];
        if !request.header("host").is_some_and(|host| own.iter().any(|known| known == host)) {
            return Response::text(403, "this server has another name");
        }
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let is_perfetto = path == "/trace" && request.header("origin") == Some(PERFETTO);
        let is_own = |origin: &str| own.iter().any(|known| origin.strip_prefix("http://") == Some(known));
        if request.has("origin") && !is_perfetto && !request.header("origin").is_some_and(is_own) {
            return Response::text(403, "pages of other origins may not ask this server");
        }
        let mut response = match request.method.as_str() {
            "GET" => self.get(path, query, request),
            // The CORS preflight for the token header.
            "OPTIONS" if is_perfetto => Response { status: 204, ..Response::text(204, "") },
            _ => Response::text(405, "this server answers GET requests"),
        };
        if is_perfetto {
            let headers = [
                ("Access-Control-Allow-Origin", PERFETTO),
                ("Access-Control-Allow-Headers", TOKEN),
                ("Access-Control-Allow-Private-Network", "true"),
            ];
            response.headers.extend(headers.map(|(name, value)| (name, value.to_owned())));
            response.headers.push(("Vary", "Origin".to_owned()));
        }
        response
    }

    fn get(&self, path: &str, query: &str, request: &Request) -> Response<'_> {
        let html = "text/html; charset=utf-8";
        if path == "/" {
            return Response { status: 200, kind: html, headers: Vec::new(), body: laptime_page::shell().into() };
        }
        if !["/page", "/data", "/trace"].contains(&path) {
            return Response::text(404, "there is nothing at this address");
        }
        if !request.header(TOKEN).is_some_and(|given| is_equal(given.as_bytes(), self.token.as_bytes())) {
            return Response::text(403, "the token is wrong; use the address that `laptime view` printed");
        }
        let found = match path {
            "/page" => Ok((html, self.viewer.html().into())),
            "/trace" => self.trace_bytes().map(|bytes| ("application/octet-stream", bytes.into())),
            _ if query.is_empty() => Ok(("application/octet-stream", self.viewer.data().into())),
            _ => match window(query) {
                Some(window) => self.viewer.window(window).map(|bytes| ("application/octet-stream", bytes.into())),
                None => return Response::text(400, "a window is `from=NS&to=NS`, and it ends after it begins"),
            },
        };
        match found {
            Ok((kind, body)) => {
                let name = self.file.file_name().unwrap_or_default().to_string_lossy();
                // A header value must be ASCII.
                let name = name.chars().map(|letter| if letter.is_ascii_graphic() { letter } else { '_' }).collect();
                Response { status: 200, kind, headers: vec![("X-File-Name", name)], body }
            }
            Err(error) => Response::text(500, &format!("the data cannot be read: {error}")),
        }
    }

    /// The trace in a format that Perfetto reads: the file itself, unless it is an SQLite database.
    fn trace_bytes(&self) -> io::Result<Vec<u8>> {
        let bytes = std::fs::read(self.file)?;
        if !bytes.starts_with(b"SQLite format 3\0") {
            return Ok(bytes);
        }
        let mut written = Vec::new();
        format::write_to(self.trace, format::Format::Pftrace, &mut written)?;
        Ok(written)
    }
}

/// Compares in constant time.
fn is_equal(given: &[u8], known: &[u8]) -> bool {
    given.len() == known.len() && std::iter::zip(given, known).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Parses `from=NS&to=NS`.
fn window(query: &str) -> Option<std::ops::Range<u64>> {
    let (from, to) = query.strip_prefix("from=")?.split_once("&to=")?;
    let window = from.parse().ok()?..to.parse().ok()?;
    (window.start < window.end).then_some(window)
}
