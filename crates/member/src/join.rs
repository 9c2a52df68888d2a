//! Joining a cluster.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use cluster::NodeId;
use cluster::record::RecordVersion;
use data_encoding::HEXLOWER;
use http::StatusCode;
use peers::{Authority, Identity, JoinRequest, Refusal, Token, TokenRecord};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::address_check::{self, Answering};
use crate::control::Catalogue;
use crate::control::entry::{Entry, EntryOutcome, MemberInfo};
use crate::gateway::Gateway;
use crate::log_table::LogTables;
use crate::membership::{Cluster, LogKeeper, Membership, random};

/// Time within which a node that starts knows its cluster's members.
const START_TIME_MAX: Duration = Duration::from_secs(10);
const START_LOOK: Duration = Duration::from_millis(50);

/// The record of a token in the control slot.
#[derive(Serialize, Deserialize)]
struct StoredToken {
    hash: String,
    expires: u64,
}

/// The description of a joining node.
#[derive(Serialize, Deserialize)]
struct Facts {
    #[serde(flatten)]
    member: MemberInfo,
    /// The number that its address answers with; absent in nodes of earlier versions.
    #[serde(default)]
    proof: Option<String>,
    /// The latest record version that its program reads; absent in programs that do not know
    /// announcements.
    #[serde(default)]
    version: Option<RecordVersion>,
}

/// The response to a joining node.
#[derive(Serialize, Deserialize)]
struct Welcome {
    cluster: Cluster,
    node: NodeId,
    others: Vec<(NodeId, String)>,
    authority: String,
    /// Cluster-wide settings: section, key, value.
    settings: Vec<Setting>,
    /// The keeper of the log; absent in answers of programs that support Kafka only.
    #[serde(default)]
    log: Option<LogKeeper>,
}

/// Section, key and value.
pub type Setting = (String, String, String);

/// Issues and redeems join tokens.
pub struct Issuer {
    cluster: Cluster,
    identity: Arc<Identity>,
    catalogue: Arc<Catalogue>,
    logs: Arc<LogTables>,
    gateway: OnceLock<Arc<Gateway>>,
}

impl Issuer {
    pub(crate) fn new(
        cluster: Cluster,
        identity: Arc<Identity>,
        catalogue: Arc<Catalogue>,
        logs: Arc<LogTables>,
    ) -> Issuer {
        Issuer {
            cluster,
            identity,
            catalogue,
            logs,
            gateway: OnceLock::new(),
        }
    }

    pub(crate) fn propose_by(&self, gateway: Arc<Gateway>) {
        // A second call has no effect.
        let _ = self.gateway.set(gateway);
    }

    /// Issues a token that lets one node join within this time.
    ///
    /// # Errors
    /// [`Error::Identity`] and [`Error::NotNow`].
    pub async fn token(&self, valid: Duration) -> Result<String, Error> {
        let members = self.addresses().await?;
        let authority = self.identity.authority();
        let (token, record) = Token::issue(authority, members, SystemTime::now(), valid)?;
        let kept = StoredToken {
            hash: HEXLOWER.encode(&record.secret_hash),
            expires: record.expires,
        };
        let entry = Entry::Token {
            id: HEXLOWER.encode(&record.id),
            record: serde_json::to_string(&kept).unwrap_or_default(),
        };
        self.gateway()?.enter(entry).await?;
        Ok(token.to_string())
    }

    /// Returns the members' addresses. A new cluster has its first member moments after its first node
    /// answers.
    async fn addresses(&self) -> Result<Vec<String>, Error> {
        let deadline = Instant::now() + START_TIME_MAX;
        loop {
            let members: Vec<String> = self.catalogue.with(|state| {
                let addresses = state.members.values().map(|member| member.address.clone());
                addresses.collect()
            });
            if !members.is_empty() {
                return Ok(members);
            }
            if Instant::now() > deadline {
                return Err(Error::NotNow("the node is starting".into()));
            }
            tokio::time::sleep(START_LOOK).await;
        }
    }

    fn gateway(&self) -> Result<&Arc<Gateway>, Error> {
        let starting = || Error::NotNow("the node is starting".into());
        self.gateway.get().ok_or_else(starting)
    }

    /// Returns whether the token of a node is valid by the state here, which may be late.
    pub(crate) fn knows(&self, request: &JoinRequest) -> bool {
        self.check(&HEXLOWER.encode(&request.id), request).is_ok()
    }

    /// Handles the request of a node to join.
    pub(crate) async fn join(&self, request: JoinRequest) -> Result<Bytes, Refusal> {
        let unavailable = |e: Error| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, e.to_string());
        let gateway = self.gateway().map_err(unavailable)?;
        gateway.control_is_here().await.map_err(unavailable)?;
        let id = HEXLOWER.encode(&request.id);
        self.check(&id, &request)?;
        let facts = serde_json::from_slice::<Facts>(&request.facts);
        let malformed = |e: serde_json::Error| Refusal::new(StatusCode::BAD_REQUEST, e.to_string());
        let Facts {
            member,
            proof,
            version,
        } = facts.map_err(malformed)?;
        let version = self.check_version(version)?;
        if let Some(proof) = &proof {
            let unreachable = |why| Refusal::new(StatusCode::BAD_REQUEST, why);
            address_check::check(&member.address, proof)
                .await
                .map_err(unreachable)?;
        }
        let internal = |e: Error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string());
        let node = new_number().map_err(internal)?;
        let entry = Entry::Join {
            node,
            member: member.clone(),
            token: Some(id),
            version,
        };
        match gateway.enter(entry).await.map_err(unavailable)? {
            EntryOutcome::Done => {}
            EntryOutcome::Exists => {
                let name = member.name;
                let text =
                    format!("there is a member called {name} already: give it another --name");
                return Err(Refusal::new(StatusCode::CONFLICT, text));
            }
            EntryOutcome::Missing => return Err(unknown_token()),
            EntryOutcome::Refused => return Err(unavailable(raised())),
        }
        let welcome = self.welcome(node).map_err(|e| internal(e.into()))?;
        let text = serde_json::to_vec(&welcome);
        text.map(Bytes::from).map_err(malformed)
    }

    /// Describes the cluster to a node that has joined.
    fn welcome(&self, node: NodeId) -> Result<Welcome, peers::IdentityError> {
        let authority = self.identity.authority().to_pem()?;
        let settings = self.catalogue.with(|state| {
            let all = state.settings.iter();
            all.map(|((section, key), value)| (section.clone(), key.clone(), value.clone()))
                .collect()
        });
        let others = self.catalogue.with(|state| {
            let others = state.members.iter().filter(|(id, _)| **id != node);
            others
                .map(|(id, other)| (*id, other.address.clone()))
                .collect()
        });
        Ok(Welcome {
            cluster: self.cluster.clone(),
            node,
            others,
            authority,
            settings,
            log: Some(self.logs.keeper()),
        })
    }

    /// Refuses a joining program that does not read the version in force, or would refuse entries of
    /// versions. Returns the version for the entry.
    fn check_version(
        &self,
        known: Option<RecordVersion>,
    ) -> Result<Option<RecordVersion>, Refusal> {
        let agreement = self.catalogue.agreement();
        let older = || {
            let text = "the joining node has an older program than this one: join with the same version of Settee";
            Refusal::new(StatusCode::CONFLICT, text)
        };
        let known = known.ok_or_else(older)?;
        let refused = |e: Error| Refusal::new(StatusCode::CONFLICT, e.to_string());
        crate::versions::check(&agreement, known).map_err(refused)?;
        // Version 1 has no entry that names it. The node announces it once it is started.
        Ok((agreement.in_force() > RecordVersion::V1).then_some(known))
    }

    fn check(&self, id: &str, request: &JoinRequest) -> Result<(), Refusal> {
        let kept = self.catalogue.with(|state| state.tokens.get(id).cloned());
        let kept = kept.and_then(|text| serde_json::from_str::<StoredToken>(&text).ok());
        let kept = kept.ok_or_else(unknown_token)?;
        let hash = HEXLOWER.decode(kept.hash.as_bytes()).ok();
        let record = TokenRecord {
            id: request.id,
            secret_hash: hash
                .and_then(|h| h.try_into().ok())
                .ok_or_else(unknown_token)?,
            expires: kept.expires,
        };
        let refused = |e: peers::TokenError| Refusal::new(StatusCode::FORBIDDEN, e.to_string());
        peers::check(&record, &request.secret, SystemTime::now()).map_err(refused)
    }
}

fn raised() -> Error {
    Error::NotNow("the record version in force was raised meanwhile: try again".into())
}

fn unknown_token() -> Refusal {
    Refusal::new(
        StatusCode::FORBIDDEN,
        peers::TokenError::Unknown.to_string(),
    )
}

/// Returns a new node number: random, short enough for people, and never 0.
pub fn new_number() -> Result<NodeId, Error> {
    Ok(u64::from(u32::from_be_bytes(random()?)).max(1))
}

fn new_mark() -> Result<String, Error> {
    Ok(HEXLOWER.encode(&random::<16>()?))
}

/// Joins a cluster with a token: afterwards the data directory belongs to a member. Meanwhile this
/// process listens at `listen`, an address of this machine, to which the member's address must lead.
/// `version` is the latest record version that this program reads. Returns the settings to apply.
///
/// # Errors
/// The reason of the failure: nothing is stored then.
pub async fn join(
    data: &Path,
    token: &str,
    member: MemberInfo,
    listen: &str,
    version: RecordVersion,
) -> Result<(Membership, Vec<Setting>), Error> {
    if crate::membership::is_member(data) {
        return Err(Error::AlreadyMember(crate::membership::folder(data)));
    }
    let token: Token = token.trim().parse()?;
    let answering = Answering::listen(listen).await?;
    let facts = Facts {
        member: member.clone(),
        proof: Some(answering.proof.clone()),
        version: Some(version),
    };
    let facts = serde_json::to_vec(&facts).map_err(|e| Error::Membership(e.to_string()))?;
    let answer = peers::join(&token, facts.into(), SystemTime::now()).await?;
    let welcome: Welcome =
        serde_json::from_slice(&answer).map_err(|e| Error::Membership(e.to_string()))?;
    let home = Membership {
        cluster: welcome.cluster,
        node: welcome.node,
        member,
        others: welcome.others,
        store: new_mark()?,
        is_started: false,
        brings_data: false,
        log: welcome.log,
    };
    home.keep(data, Authority::from_pem(&welcome.authority)?)?;
    Ok((home, welcome.settings))
}

/// Makes a data directory the first member of a new cluster.
///
/// # Errors
/// The reason of the failure: nothing is stored then.
pub fn init(data: &Path, name: &str, slots: u16, member: MemberInfo) -> Result<Membership, Error> {
    let (home, authority) = first_member(name, slots, member)?;
    home.keep(data, authority)?;
    Ok(home)
}

/// Creates a cluster, and returns the membership of its first node with the cluster's authority.
///
/// # Errors
/// [`Error::Random`] and [`Error::Identity`].
pub(crate) fn first_member(
    name: &str,
    slots: u16,
    member: MemberInfo,
) -> Result<(Membership, Authority), Error> {
    let node = new_number()?;
    let cluster = Cluster::create(name, slots, node)?;
    let authority = Authority::create(cluster.id_bytes()?, SystemTime::now())?;
    let home = Membership {
        cluster,
        node,
        member,
        others: vec![],
        store: new_mark()?,
        is_started: false,
        brings_data: false,
        log: Some(LogKeeper::Undecided),
    };
    Ok((home, authority))
}
