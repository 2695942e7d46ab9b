CREATE TABLE users (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name TEXT NOT NULL,
    email TEXT NOT NULL UNIQUE
);

CREATE TABLE products (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name TEXT NOT NULL,
    price_cents BIGINT NOT NULL,
    stock BIGINT NOT NULL CHECK (stock >= 0)
);

CREATE TABLE orders (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id BIGINT NOT NULL REFERENCES users (id),
    total_cents BIGINT NOT NULL,
    placed_at BIGINT NOT NULL
);

CREATE INDEX orders_of_user ON orders (user_id, id);

CREATE TABLE order_lines (
    order_id BIGINT NOT NULL REFERENCES orders (id),
    product_id BIGINT NOT NULL REFERENCES products (id),
    quantity BIGINT NOT NULL,
    price_cents BIGINT NOT NULL,
    PRIMARY KEY (order_id, product_id)
);
