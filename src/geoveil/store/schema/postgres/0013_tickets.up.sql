-- Campaigns whose reports need tickets: the key that signs them, and who may ask for one.

-- What signs the tickets of a campaign. Goes with the campaign.
CREATE TABLE ticket_key (
    campaign_key bigint  NOT NULL         -- campaign.key; immutable
        REFERENCES campaign (key),
    primes bytea NOT NULL,               -- two primes of 128 bytes; immutable
    CONSTRAINT ticket_key_is_unique PRIMARY KEY (campaign_key),
    CONSTRAINT ticket_key_has_256_bytes CHECK (length(primes) = 256)
);

-- A code that its holder may ask for one ticket with. The code itself is not kept.
CREATE TABLE invitation (
    campaign_key bigint  NOT NULL         -- campaign.key; immutable
        REFERENCES campaign (key),
    digest bytea NOT NULL,               -- SHA-256 of the code, 32 bytes; immutable
    request bytea,                       -- SHA-256 of what was signed for it; nothing while unused; written once
    CONSTRAINT invitation_is_unique PRIMARY KEY (campaign_key, digest),
    CONSTRAINT invitation_digest_is_sha256 CHECK (length(digest) = 32),
    CONSTRAINT invitation_request_is_sha256 CHECK (length(request) = 32)
);
