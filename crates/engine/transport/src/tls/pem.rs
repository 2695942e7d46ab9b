//! Certificates, private keys and lists of revoked certificates in PEM form (RFC 7468), and what is said of files in other forms.

use std::fmt;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate, X509CertificationRequest};
use x509_parser::revocation_list::CertificateRevocationList;

/// Why a file does not have what is expected of it, and the command that helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemFault {
    what: String,
    /// With `FILE` in place of the file.
    command: Option<&'static str>,
}

impl PemFault {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            command: None,
        }
    }

    fn with_command(mut self, command: &'static str) -> Self {
        self.command = Some(command);
        self
    }

    /// What is wrong.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The command that helps, for the file with this name.
    pub fn command(&self, file: &str) -> Option<String> {
        self.command.map(|command| command.replace("FILE", file))
    }
}

impl fmt::Display for PemFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match self.command {
            Some(command) => write!(f, "; this helps: {command}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for PemFault {}

/// What a file is expected to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PemContents {
    Certificates,
    Key,
    RevocationLists,
}

impl PemContents {
    /// Whether blocks with this label are of this kind.
    fn has(self, label: &str) -> bool {
        match self {
            Self::Certificates => label == "CERTIFICATE",
            Self::Key => matches!(label, "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY"),
            Self::RevocationLists => label == "X509 CRL",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Certificates => "certificate",
            Self::Key => "private key",
            Self::RevocationLists => "list of revoked certificates",
        }
    }

    /// That there is none, with what there is instead.
    fn missing(self, instead: &str) -> PemFault {
        PemFault::new(format!("there is no {} in it{instead}", self.name()))
    }
}

/// The certificates of a file.
///
/// # Errors
/// There is none, or the file has another form.
pub fn certificates_from_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemFault> {
    check(pem, PemContents::Certificates)?;
    decode(pem, PemContents::Certificates)
}

/// The lists of revoked certificates (RFC 5280 section 5) of a file.
///
/// # Errors
/// There is none, or the file has another form.
pub fn revocation_lists_from_pem(
    pem: &[u8],
) -> Result<Vec<CertificateRevocationListDer<'static>>, PemFault> {
    check(pem, PemContents::RevocationLists)?;
    decode(pem, PemContents::RevocationLists)
}

/// The private keys of a file, which has one as a rule.
pub(super) fn keys_from_pem(pem: &[u8]) -> Result<Vec<PrivateKeyDer<'static>>, PemFault> {
    check(pem, PemContents::Key)?;
    decode(pem, PemContents::Key)
}

fn decode<T: PemObject>(pem: &[u8], expected: PemContents) -> Result<Vec<T>, PemFault> {
    let found: Result<Vec<T>, _> = T::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| {
        PemFault::new(format!(
            "a block in it is damaged, as after a copy that is not complete: {error}"
        ))
    })?;
    if found.is_empty() {
        Err(expected.missing(""))
    } else {
        Ok(found)
    }
}

/// A block from `-----BEGIN` on.
struct PemBlock {
    label: String,
    is_encrypted: bool,
}

/// Reports a file in another form than expected, and one whose blocks would be passed over.
fn check(pem: &[u8], expected: PemContents) -> Result<(), PemFault> {
    if pem.iter().all(u8::is_ascii_whitespace) {
        return Err(PemFault::new("the file is empty"));
    }
    if pem.starts_with(&[0xff, 0xfe]) || pem.starts_with(&[0xfe, 0xff]) {
        return Err(PemFault::new("it is text in UTF-16, expected ASCII")
            .with_command("iconv -f UTF-16 -t ASCII FILE > new.pem"));
    }
    if pem.starts_with(&[0xef, 0xbb, 0xbf]) {
        return Err(PemFault::new(
            "it begins with a byte order mark, by which its first block is hidden",
        )
        .with_command("sed -i '1s/^\\xEF\\xBB\\xBF//' FILE"));
    }
    let blocks = blocks(pem)?;
    for block in &blocks {
        if let Some(fault) = unusable(block, expected) {
            return Err(fault);
        }
    }
    if blocks.iter().any(|block| expected.has(&block.label)) {
        return Ok(());
    }
    match blocks.first() {
        Some(block) => Err(instead(&block.label, expected)),
        None => Err(without_blocks(pem, expected)),
    }
}

fn blocks(pem: &[u8]) -> Result<Vec<PemBlock>, PemFault> {
    let mut blocks: Vec<PemBlock> = Vec::new();
    for line in pem.split(|byte| matches!(byte, b'\n' | b'\r')) {
        let text = line.trim_ascii();
        if let Some(rest) = text.strip_prefix(b"-----BEGIN ") {
            if text.windows(2).any(|pair| pair == b"\\n") {
                return Err(PemFault::new(
                    "its line ends are the two characters \\n, as in a variable of the environment",
                )
                .with_command("printf '%b' \"$(cat FILE)\" > new.pem"));
            }
            if line.first().is_some_and(u8::is_ascii_whitespace) {
                return Err(PemFault::new(
                    "its lines begin with spaces, as after a copy out of YAML",
                )
                .with_command("sed -i 's/^[[:space:]]*//' FILE"));
            }
            let Some(label) = rest.strip_suffix(b"-----") else {
                return Err(PemFault::new(
                    "a line that begins with -----BEGIN does not end with -----",
                ));
            };
            blocks.push(PemBlock {
                label: String::from_utf8_lossy(label).into_owned(),
                is_encrypted: false,
            });
        } else if text.starts_with(b"Proc-Type:")
            && text.ends_with(b"ENCRYPTED")
            && let Some(block) = blocks.last_mut()
        {
            block.is_encrypted = true;
        }
    }
    Ok(blocks)
}

/// What is wrong with a block, although there may be others.
fn unusable(block: &PemBlock, expected: PemContents) -> Option<PemFault> {
    match (block.label.as_str(), expected) {
        ("TRUSTED CERTIFICATE" | "X509 CERTIFICATE", PemContents::Certificates) => Some(
            PemFault::new(format!(
                "it has the form `{}` of OpenSSL, expected `CERTIFICATE`",
                block.label
            ))
            .with_command("openssl x509 -in FILE -out new.pem"),
        ),
        ("ENCRYPTED PRIVATE KEY", PemContents::Key) => Some(encrypted()),
        (_, PemContents::Key) if block.is_encrypted => Some(encrypted()),
        _ => None,
    }
}

fn encrypted() -> PemFault {
    PemFault::new(
        "the private key is encrypted, and a server that starts by itself has no passphrase",
    )
    .with_command("openssl pkey -in FILE -out new.pem")
}

/// What a file has, whose first block has this label, in place of what is expected.
fn instead(label: &str, expected: PemContents) -> PemFault {
    match (label, expected) {
        ("PKCS7" | "CMS", PemContents::Certificates) => expected
            .missing(", but certificates in the form PKCS#7")
            .with_command("openssl pkcs7 -in FILE -print_certs -out new.pem"),
        ("CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST", _) => expected
            .missing(", but a request for one (CSR), of which an authority makes the certificate"),
        ("PUBLIC KEY" | "RSA PUBLIC KEY", _) => expected.missing(
            ", but a public key, of which neither the certificate nor the private key can be made",
        ),
        ("OPENSSH PRIVATE KEY", _) => expected
            .missing(", but a key of SSH")
            .with_command("ssh-keygen -p -m PKCS8 -f FILE"),
        ("DSA PRIVATE KEY", _) => expected
            .missing(", but a DSA key, which TLS does not use any more")
            .with_command(
                "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out new.pem",
            ),
        ("EC PARAMETERS", PemContents::Key) => expected
            .missing(", but the parameters of a curve")
            .with_command("openssl ecparam -name prime256v1 -genkey -noout -out new.pem"),
        ("CERTIFICATE" | "TRUSTED CERTIFICATE", PemContents::Key) => {
            expected.missing(", but a certificate: are the two files exchanged?")
        }
        (
            "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" | "ENCRYPTED PRIVATE KEY",
            PemContents::Certificates,
        ) => expected.missing(", but a private key: are the two files exchanged?"),
        (label, _) => expected.missing(&format!(", but `{label}`")),
    }
}

/// What a file without any block is.
fn without_blocks(bytes: &[u8], expected: PemContents) -> PemFault {
    let der =
        |what: &str, command| PemFault::new(format!("{what}, expected PEM")).with_command(command);
    if bytes.starts_with(&[0xfe, 0xed, 0xfe, 0xed]) {
        return der(
            "it is a key store of Java",
            "keytool -importkeystore -srckeystore FILE -destkeystore new.p12 -deststoretype pkcs12",
        );
    }
    if bytes.starts_with(b"PuTTY-User-Key-File") {
        return der(
            "it is a key of PuTTY",
            "puttygen FILE -O private-openssh -o new.key",
        );
    }
    if bytes.first() != Some(&0x30) {
        return expected.missing(", and nothing else in the form PEM");
    }
    // Of DER (X.690), what tells the kinds of files apart is near the beginning.
    let start = bytes.get(..40).unwrap_or(bytes);
    let has = |part: &[u8]| start.windows(part.len()).any(|window| window == part);
    // What can be parsed comes first, as the identifiers below may occur in it.
    if X509Certificate::from_der(bytes).is_ok() {
        return der(
            "it is a certificate in the form DER",
            "openssl x509 -inform DER -in FILE -out new.pem",
        );
    }
    if X509CertificationRequest::from_der(bytes).is_ok() {
        return instead("CERTIFICATE REQUEST", expected);
    }
    if CertificateRevocationList::from_der(bytes).is_ok() {
        return der(
            "it is a list of revoked certificates in the form DER",
            "openssl crl -inform DER -in FILE -out new.pem",
        );
    }
    // The identifier of signed data, and not version 3 before the identifier of data.
    if has(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02]) && !has(&[0x02, 0x01, 0x03]) {
        return der(
            "it has certificates in the form PKCS#7",
            "openssl pkcs7 -inform DER -in FILE -print_certs -out new.pem",
        );
    }
    if has(&[0x02, 0x01, 0x03]) && has(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07]) {
        return der(
            "it is an archive in the form PKCS#12",
            match expected {
                PemContents::Key => "openssl pkcs12 -in FILE -nocerts -noenc -out new.pem",
                _ => "openssl pkcs12 -in FILE -nokeys -out new.pem",
            },
        );
    }
    // Last, since this recognises a key by its first bytes alone.
    if PrivateKeyDer::try_from(bytes).is_ok() {
        return der(
            "it is a private key in the form DER",
            "openssl pkey -inform DER -in FILE -out new.pem",
        );
    }
    der(
        "it has the form DER, or another one that is not text",
        "openssl asn1parse -inform DER -in FILE",
    )
}
