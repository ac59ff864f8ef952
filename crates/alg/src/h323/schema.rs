//! The messages of H.225.0 (call signalling) and H.245 (control), as far as their addresses are found by walking past what
//! comes before them. The names are those of the recommendations.

/// What an address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing that is translated.
    None,
    /// Call signalling.
    Signalling,
    /// A connection for H.245.
    Control,
    /// RTP or RTCP.
    Media,
}

/// A type of ASN.1, by how it is encoded.
#[derive(Debug)]
pub(super) enum Type {
    /// Nothing.
    Null,
    /// So many bits.
    Bits(u8),
    /// So many octets from an octet's boundary on.
    Octets(u8),
    /// A number of up to 32 bits.
    Wide,
    /// Octets with their length before them.
    Bytes,
    /// At least one character; `length_bits` hold one less than how many.
    Text { length_bits: u8, char_bits: u8 },
    /// Any number of one type.
    List(&'static Type),
    /// Fields; `more` are those behind the extension marker.
    Sequence { extends: bool, fields: &'static [Field], more: &'static [&'static Type] },
    /// One of several.
    Choice { extends: bool, root: &'static [&'static Type], more: &'static [&'static Type] },
    /// Octets that are an encoding themselves.
    Encoded(&'static Type),
    /// The addresses in it are for this.
    For(Role, &'static Type),
    /// Address and port.
    Address(Form),
    /// Nothing from here on matters, to the end of what has a length.
    Rest,
    /// Not known here: without a length before it the message cannot be read.
    Unknown,
}

/// How an address and its port are encoded: the number of the alternative (three bits), in most a bit that says whether
/// there are extensions, then octets from an octet's boundary on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `ipAddress` of H.225.0's `TransportAddress`.
    Signalling4,
    /// `ip6Address` of it.
    Signalling6,
    /// `iPAddress` of H.245's `UnicastAddress`.
    Control4,
    /// `iP6Address` of it.
    Control6,
}

impl Form {
    /// Octets of address and port.
    pub(super) const fn octets(self) -> usize {
        if self.is_six() { 18 } else { 6 }
    }

    /// Is it IPv6?
    pub(super) const fn is_six(self) -> bool {
        matches!(self, Self::Signalling6 | Self::Control6)
    }

    /// The same of the other version.
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Signalling4 => Self::Signalling6,
            Self::Signalling6 => Self::Signalling4,
            Self::Control4 => Self::Control6,
            Self::Control6 => Self::Control4,
        }
    }

    /// The number of the alternative in its choice.
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Signalling4 | Self::Control4 => 0,
            Self::Signalling6 => 3,
            Self::Control6 => 2,
        }
    }

    /// Does a bit say whether there are extensions?
    pub(super) const fn extends(self) -> bool {
        !matches!(self, Self::Signalling4)
    }
}

/// A field of a sequence.
#[derive(Debug)]
pub(super) enum Field {
    Always(&'static Type),
    Optional(&'static Type),
}

use Field::{Always, Optional};
use Type::{
    Address, Bits, Bytes, Choice, Encoded, For, List, Null, Octets, Rest, Sequence, Text, Unknown, Wide,
};

const fn sequence(fields: &'static [Field], more: &'static [&'static Type]) -> Type {
    Sequence { extends: true, fields, more }
}

const fn fixed(fields: &'static [Field]) -> Type {
    Sequence { extends: false, fields, more: &[] }
}

const fn choice(root: &'static [&'static Type], more: &'static [&'static Type]) -> Type {
    Choice { extends: true, root, more }
}

const BOOLEAN: &Type = &Bits(1);
/// INTEGER (0..255) and (1..256): an octet.
const BYTE: &Type = &Octets(1);
/// INTEGER (0..65535) and (1..65536): two.
const WORD: &Type = &Octets(2);
/// SIZE (1..256).
const NAME: &Type = &Text { length_bits: 8, char_bits: 8 };

// H.225.0.

/// `H323-UserInformation`.
pub(super) static USER_INFORMATION: Type = sequence(&[Always(&UU_PDU), Optional(&Rest)], &[]);

static UU_PDU: Type = sequence(
    &[
        Always(&choice(
            &[
                &SETUP,
                &CALL_PROCEEDING,
                &CONNECT,
                &CALL_PROCEEDING,
                &INFORMATION,
                &RELEASE_COMPLETE,
                &FACILITY,
            ],
            &[&PROGRESS],
        )),
        Optional(NON_STANDARD),
    ],
    // h4501SupplementaryService, h245Tunnelling, h245Control.
    &[&Unknown, &Unknown, &List(&Encoded(&CONTROL_MESSAGE))],
);

static SETUP: Type = sequence(
    &[
        Always(&Bytes),
        Optional(H245_ADDRESS),
        Optional(ALIASES),
        Always(&ENDPOINT_TYPE),
        Optional(ALIASES),
        Optional(SIGNAL_ADDRESS),
        Optional(ALIASES),
        Optional(&List(WORD)),
        Always(BOOLEAN),
        Always(CONFERENCE_ID),
        Always(&choice(&[&Null, &Null, &Null], &[])),
        Optional(&Q_SERIES_OPTIONS),
        Always(&choice(&[&Null, &Null, &Null, &Null], &[])),
    ],
    // sourceCallSignalAddress; fastStart is the seventh, parallelH245Control the twenty-fifth.
    &[
        SIGNAL_ADDRESS,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        FAST_START,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        &Unknown,
        &List(&Encoded(&CONTROL_MESSAGE)),
    ],
);

/// `Alerting-UUIE` has the same fields as far as they matter.
static CALL_PROCEEDING: Type = sequence(
    &[Always(&Bytes), Always(&ENDPOINT_TYPE), Optional(H245_ADDRESS)],
    &[&Unknown, &Unknown, &Unknown, &Unknown, FAST_START],
);

static CONNECT: Type = sequence(
    &[Always(&Bytes), Optional(H245_ADDRESS), Always(&ENDPOINT_TYPE), Always(CONFERENCE_ID)],
    &[&Unknown, &Unknown, &Unknown, &Unknown, FAST_START],
);

static INFORMATION: Type = sequence(&[Always(&Bytes)], &[&Unknown, &Unknown, &Unknown, FAST_START]);

/// The reason is one of twelve, or one with its length.
static RELEASE_COMPLETE: Type = sequence(
    &[
        Always(&Bytes),
        Optional(&choice(
            &[&Null, &Null, &Null, &Null, &Null, &Null, &Null, &Null, &Null, &Null, &Null, &Null],
            &[],
        )),
    ],
    &[],
);

static FACILITY: Type = sequence(
    &[
        Always(&Bytes),
        Optional(SIGNAL_ADDRESS),
        Optional(ALIASES),
        Optional(CONFERENCE_ID),
        Always(&choice(&[&Null, &Null, &Null, &Null], &[])),
    ],
    &[&Unknown, &Unknown, &Unknown, &Unknown, &Unknown, &Unknown, H245_ADDRESS, FAST_START],
);

static PROGRESS: Type = sequence(
    &[
        Always(&Bytes),
        Always(&ENDPOINT_TYPE),
        Optional(H245_ADDRESS),
        Always(&sequence(&[Always(CONFERENCE_ID)], &[])),
        Optional(&Unknown),
        Optional(&Unknown),
        Optional(&Unknown),
        Optional(FAST_START),
    ],
    &[],
);

const H245_ADDRESS: &Type = &For(Role::Control, &TRANSPORT_ADDRESS);
const SIGNAL_ADDRESS: &Type = &For(Role::Signalling, &TRANSPORT_ADDRESS);
/// Each is a proposed or accepted channel.
const FAST_START: &Type = &List(&Encoded(&OPEN_LOGICAL_CHANNEL));
const CONFERENCE_ID: &Type = &Octets(16);

static TRANSPORT_ADDRESS: Type = choice(
    &[
        &Address(Form::Signalling4),
        &sequence(
            &[
                Always(&Octets(4)),
                Always(WORD),
                Always(&List(&Octets(4))),
                Always(&choice(&[&Null, &Null], &[])),
            ],
            &[],
        ),
        &fixed(&[Always(&Octets(6)), Always(&Octets(4)), Always(&Bits(16))]),
        &sequence(&[Always(&Address(Form::Signalling6))], &[]),
        &Octets(16),
        &Text { length_bits: 5, char_bits: 8 },
        NON_STANDARD,
    ],
    &[],
);

const ALIASES: &Type = &List(&ALIAS_ADDRESS);
/// `dialledDigits` are of thirteen characters, so that each takes four bits; `h323-ID` is a BMPString.
static ALIAS_ADDRESS: Type =
    choice(&[&Text { length_bits: 7, char_bits: 4 }, &Text { length_bits: 8, char_bits: 16 }], &[]);

static ENDPOINT_TYPE: Type = sequence(
    &[
        Optional(NON_STANDARD),
        Optional(&VENDOR),
        Optional(&MAY_BE_NON_STANDARD),
        Optional(&sequence(&[Optional(&List(&SUPPORTED_PROTOCOLS)), Optional(NON_STANDARD)], &[])),
        Optional(&MAY_BE_NON_STANDARD),
        Optional(&MAY_BE_NON_STANDARD),
        Always(BOOLEAN),
        Always(BOOLEAN),
    ],
    &[],
);

static VENDOR: Type = sequence(&[Always(&H221), Optional(NAME), Optional(NAME)], &[]);
static H221: Type = sequence(&[Always(BYTE), Always(BYTE), Always(WORD)], &[]);
static MAY_BE_NON_STANDARD: Type = sequence(&[Optional(NON_STANDARD)], &[]);
static SUPPORTED_PROTOCOLS: Type = choice(
    &[
        NON_STANDARD,
        &MAY_BE_NON_STANDARD,
        &MAY_BE_NON_STANDARD,
        &MAY_BE_NON_STANDARD,
        &MAY_BE_NON_STANDARD,
        &MAY_BE_NON_STANDARD,
        &MAY_BE_NON_STANDARD,
        &MAY_BE_NON_STANDARD,
        &MAY_BE_NON_STANDARD,
    ],
    &[],
);
const NON_STANDARD: &Type = &NON_STANDARD_PARAMETER;
static NON_STANDARD_PARAMETER: Type = fixed(&[Always(&choice(&[&Bytes, &H221], &[])), Always(&Bytes)]);

static Q_SERIES_OPTIONS: Type =
    sequence(&[Always(&Bits(7)), Always(&sequence(&[Always(BOOLEAN), Always(BOOLEAN)], &[]))], &[]);

// H.245.

/// `MultimediaSystemControlMessage`: a request to open a channel, the answer to it, or something else.
pub(super) static CONTROL_MESSAGE: Type = choice(&[&REQUEST, &RESPONSE, &Rest, &Rest], &[]);

static REQUEST: Type = choice(
    &[&Rest, &Rest, &Rest, &OPEN_LOGICAL_CHANNEL, &Rest, &Rest, &Rest, &Rest, &Rest, &Rest, &Rest],
    &[],
);

static RESPONSE: Type = choice(
    &[
        &Rest,
        &Rest,
        &Rest,
        &Rest,
        &Rest,
        &OPEN_LOGICAL_CHANNEL_ACK,
        &Rest,
        &Rest,
        &Rest,
        &Rest,
        &Rest,
        &Rest,
        &Rest,
        &Rest,
        &Rest,
        &Rest,
        &Rest,
        &Rest,
        &Rest,
    ],
    &[],
);

static OPEN_LOGICAL_CHANNEL: Type = sequence(
    &[
        Always(WORD),
        Always(&sequence(
            &[
                Optional(WORD),
                Always(&DATA_TYPE),
                Always(&choice(&[&Unknown, &Unknown, &Unknown], &[&H2250_PARAMETERS])),
            ],
            &[],
        )),
        Optional(&sequence(
            &[Always(&DATA_TYPE), Optional(&choice(&[&Unknown, &Unknown], &[&H2250_PARAMETERS]))],
            &[],
        )),
    ],
    &[],
);

static OPEN_LOGICAL_CHANNEL_ACK: Type = sequence(
    &[
        Always(WORD),
        Optional(&sequence(
            &[Always(WORD), Optional(WORD), Optional(&choice(&[&Unknown], &[&H2250_PARAMETERS]))],
            &[],
        )),
    ],
    // separateStack, forwardMultiplexAckParameters.
    &[&Unknown, &choice(&[&H2250_ACK_PARAMETERS], &[])],
);

static H2250_PARAMETERS: Type = sequence(
    &[
        Optional(&List(H245_NON_STANDARD)),
        Always(BYTE),
        Optional(&Bits(8)),
        Optional(MEDIA_ADDRESS),
        Optional(BOOLEAN),
        Optional(MEDIA_ADDRESS),
        Optional(&Rest),
        Optional(&Rest),
        Optional(&Rest),
        Optional(&Rest),
        Optional(&Rest),
    ],
    &[],
);

static H2250_ACK_PARAMETERS: Type = sequence(
    &[
        Optional(&List(H245_NON_STANDARD)),
        Optional(&Bits(8)),
        Optional(MEDIA_ADDRESS),
        Optional(MEDIA_ADDRESS),
        Optional(&Rest),
    ],
    &[],
);

const MEDIA_ADDRESS: &Type = &For(Role::Media, &H245_TRANSPORT_ADDRESS);

static H245_TRANSPORT_ADDRESS: Type = choice(
    &[
        &choice(
            &[
                &sequence(&[Always(&Address(Form::Control4))], &[]),
                &sequence(&[Always(&Octets(6)), Always(&Octets(4)), Always(&Bits(16))], &[]),
                &sequence(&[Always(&Address(Form::Control6))], &[]),
                &Octets(16),
                &sequence(
                    &[Always(&Bits(1)), Always(&Octets(4)), Always(WORD), Always(&List(&Octets(4)))],
                    &[],
                ),
            ],
            &[],
        ),
        &choice(
            &[
                &sequence(&[Always(&Octets(4)), Always(WORD)], &[]),
                &sequence(&[Always(&Octets(16)), Always(WORD)], &[]),
            ],
            &[],
        ),
    ],
    &[],
);

const H245_NON_STANDARD: &Type = &fixed(&[
    Always(&Choice {
        extends: false,
        root: &[&Bytes, &fixed(&[Always(BYTE), Always(BYTE), Always(WORD)])],
        more: &[],
    }),
    Always(&Bytes),
]);

static DATA_TYPE: Type = choice(&[H245_NON_STANDARD, &Null, &VIDEO, &AUDIO, &DATA, &Unknown], &[]);

static AUDIO: Type = choice(
    &[
        H245_NON_STANDARD,
        BYTE,
        BYTE,
        BYTE,
        BYTE,
        BYTE,
        BYTE,
        BYTE,
        // g7231.
        &fixed(&[Always(BYTE), Always(BOOLEAN)]),
        BYTE,
        BYTE,
        BYTE,
        // is11172 and is13818: switches, and the bit rate.
        &sequence(&[Always(&Bits(8)), Always(WORD)], &[]),
        &sequence(&[Always(&Bits(20)), Always(WORD)], &[]),
    ],
    &[],
);

static VIDEO: Type = choice(&[H245_NON_STANDARD, &H261, &Unknown, &H263, &Unknown], &[]);

static H261: Type =
    sequence(&[Optional(&Bits(2)), Optional(&Bits(2)), Always(BOOLEAN), Always(WORD), Always(BOOLEAN)], &[]);

/// INTEGER (1..32) five times, the bit rate, five switches.
static H263: Type = sequence(
    &[
        Optional(&Bits(5)),
        Optional(&Bits(5)),
        Optional(&Bits(5)),
        Optional(&Bits(5)),
        Optional(&Bits(5)),
        Always(&Wide),
        Always(&Bits(5)),
        Optional(&Wide),
        Optional(WORD),
    ],
    &[],
);

/// T.120 and others, by a protocol that is one of seven or has its length.
static DATA: Type = sequence(&[Always(&APPLICATION), Always(&Wide)], &[]);
static APPLICATION: Type = choice(
    &[
        H245_NON_STANDARD,
        &DATA_PROTOCOL,
        &DATA_PROTOCOL,
        &DATA_PROTOCOL,
        &Unknown,
        &DATA_PROTOCOL,
        &DATA_PROTOCOL,
        &Unknown,
        &Null,
        &DATA_PROTOCOL,
    ],
    &[],
);
static DATA_PROTOCOL: Type = choice(&[H245_NON_STANDARD, &Null, &Null, &Null, &Null, &Null, &Null], &[]);
