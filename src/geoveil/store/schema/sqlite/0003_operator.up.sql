-- Who may operate: holders of a token. The token itself is not kept.
CREATE TABLE token (
    digest BLOB NOT NULL,                 -- SHA-256 of the token, 32 bytes; immutable
    label TEXT NOT NULL,                  -- what the operator calls it; immutable
    created_at_s INTEGER NOT NULL,        -- when it was made, seconds since 1970; immutable
    CONSTRAINT token_is_unique PRIMARY KEY (digest),
    CONSTRAINT token_digest_is_sha256 CHECK (length(digest) = 32)
) STRICT, WITHOUT ROWID;
