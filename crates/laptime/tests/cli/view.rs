//! `laptime view`, over real sockets.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, ChildStdout, Stdio},
};

use crate::common::{Place, small_trace};

/// The program while it serves.
struct Served {
    child: Child,
    out: BufReader<ChildStdout>,
    host: String,
    token: String,
    _place: Place,
}

impl Served {
    fn new() -> Self {
        let place = Place::new();
        laptime_trace::write(&small_trace(), place.path("a.json")).unwrap();
        let mut child = place
            .command()
            .args(["view", "a.json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let (address, token) = line.trim().split_once("/#").expect("the address has a token");
        let host = address.strip_prefix("http://").unwrap().to_owned();
        Self { host, token: token.to_owned(), child, out, _place: place }
    }

    /// Sends text and returns the status, the headers and the body.
    fn send(&self, text: &str) -> (u16, String, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("an answer has headers");
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head, answer[end + 4..].to_vec())
    }

    fn get(&self, path: &str, headers: &str) -> (u16, String, Vec<u8>) {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.host))
    }

    fn token(&self) -> String {
        format!("X-Laptime-Token: {}\r\n", self.token)
    }

    /// Ends it as Ctrl-C does, and returns the exit status and the rest of its output.
    fn end(mut self) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let status = self.child.wait().unwrap().code();
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        (status, rest)
    }
}

#[test]
fn the_page_and_its_data_need_the_token_and_ctrl_c_ends_it_well() {
    let served = Served::new();
    assert!(served.host.starts_with("127.0.0.1:") && served.token.len() == 32, "{} {}", served.host, served.token);
    let (status, head, shell) = served.get("/", "");
    let shell = String::from_utf8(shell).unwrap();
    assert_eq!(status, 200, "{head}");
    assert!(shell.contains("data-served") && shell.contains("connect-src 'self'") && !shell.contains("generate"));
    for path in ["/page", "/data", "/data?from=0&to=10", "/trace"] {
        let wrong = format!("X-Laptime-Token: {}\r\n", "0".repeat(32));
        for headers in ["", &wrong, "X-Laptime-Token: \r\n", &(served.token() + &served.token())] {
            assert_eq!(served.get(path, headers).0, 403, "{path} with {headers:?}");
        }
        assert_eq!(served.get(path, &served.token()).0, 200, "{path}");
    }
    let page = String::from_utf8(served.get("/page", &served.token()).2).unwrap();
    assert!(page.contains("generate") && !page.contains("id=\"data\""), "{page}");
    assert_eq!(served.get("/data", &served.token()).2[..2], [0x78, 0x9c], "zlib");
    assert!(served.get("/trace", &served.token()).2.starts_with(b"{"));
    assert_eq!(served.end(), (Some(0), String::new()));
}

#[test]
fn other_hosts_other_origins_and_other_paths_are_refused() {
    let served = Served::new();
    let token = served.token();
    let port = served.host.rsplit(':').next().unwrap().to_owned();
    for host in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1", &format!("127.0.0.1:{port}, a")] {
        let (status, _, body) = served.send(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!((status, body.as_slice()), (403, &b"this server has another name\n"[..]), "{host}");
    }
    assert_eq!(served.send("GET / HTTP/1.1\r\n\r\n").0, 403, "no host");
    let perfetto = "Origin: https://ui.perfetto.dev\r\n";
    let (status, head, _) = served.get("/trace", &format!("{token}{perfetto}"));
    assert!(status == 200 && head.contains("Access-Control-Allow-Origin: https://ui.perfetto.dev\r\n"), "{head}");
    assert_eq!(served.get("/trace", perfetto).0, 403, "Perfetto needs the token as well");
    let asked = format!("OPTIONS /trace HTTP/1.1\r\nHost: {}\r\n{perfetto}\r\n", served.host);
    let (status, head, _) = served.send(&asked);
    assert!(status == 204 && head.contains("Access-Control-Allow-Headers: x-laptime-token"), "{head}");
    for path in ["/page", "/data", "/"] {
        let (status, head, _) = served.get(path, &format!("{token}{perfetto}"));
        assert!(status == 403 && !head.contains("Access-Control"), "{path}: {head}");
    }
    for origin in ["https://evil.example", "null", "https://ui.perfetto.dev.evil.example", "http://ui.perfetto.dev"] {
        let (status, head, _) = served.get("/trace", &format!("{token}Origin: {origin}\r\n"));
        assert!(status == 403 && !head.contains("Access-Control"), "{origin}: {head}");
    }
    assert_eq!(served.get("/data", &format!("{token}Origin: http://{}\r\n", served.host)).0, 200, "its own origin");
    for path in ["/../a.json", "/a.json", "//etc/passwd", "/%2e%2e/a.json", "/trace/../a.json", "/data/"] {
        assert_eq!(served.get(path, &token).0, 404, "{path}");
    }
    for query in
        ["from=1", "from=5&to=5", "from=-1&to=5", "from=a&to=b", "to=5&from=1", "from=0&to=99999999999999999999"]
    {
        assert_eq!(served.get(&format!("/data?{query}"), &token).0, 400, "{query}");
    }
    let long = format!("A: {}\r\n", "a".repeat(20_000));
    assert_eq!((served.get("/", &long).0, served.send("POST / HTTP/1.0\r\n\r\n").0), (431, 400));
    assert_eq!(served.send(&format!("DELETE / HTTP/1.1\r\nHost: {}\r\n\r\n", served.host)).0, 405);
    assert_eq!(served.end().0, Some(0));
}

#[test]
fn a_trace_that_cannot_be_read_is_one_error() {
    let place = Place::new();
    place.write("a.json", "no trace");
    let error = place.laptime(["view", "a.json"]).failed();
    assert!(error.contains("a.json"), "{error}");
}
