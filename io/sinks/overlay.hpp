#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/decode/decode.hpp"
#include "io/results/label_rows.hpp"
#include "io/results/object.hpp"

namespace millrace {

struct Colour {
  std::uint8_t red = 0, green = 0, blue = 0;
};

/// The colour of a class, the same in every run. Classes 21 apart share one.
/// Seven hues that colour-blind eyes can distinguish (Okabe and Ito, "Color Universal Design", 2008),
/// then lighter and then darker ones of the same hues.
Colour class_colour(int class_id);

/// Contrast ratio of two colours, 1 to 21 (WCAG 2.1, "contrast ratio" and "relative luminance").
double contrast_ratio(Colour a, Colour b);

/// Black or white: the one with the higher contrast to `plate`. The ratio is at least 4.58 for any plate.
Colour text_colour(Colour plate);

/// An object's box in pixels of the raster. It is inside the raster, and at least one pixel wide and high.
struct OverlayBox {
  int left = 0, top = 0, right = 0, bottom = 0;
};
OverlayBox overlay_box(const Object& object, int raster_width, int raster_height, int reduction);

/// The height of text: max(12 px, 1.5 % of the longer side).
/// It is measured from the top of a capital letter to the lowest end of a "g".
int overlay_font_height(int width, int height);

/// The text of an object's label, in the characters of the font. Latin letters lose their marks.
/// A name with other letters is replaced by "class" and its number.
std::string label_text(const Object& object);

/// The position of a label, in pixels of the raster.
struct OverlayLabel {
  std::size_t object = 0;                   ///< index
  int x = 0, y = 0, width = 0, height = 0;  ///< the plate
  std::string text;                         ///< name and score; a long name is cut with ".."
};

/// Positions for the labels of the 300 objects with the highest scores, best first.
/// Twelve positions at the corners of a box are tried, all inside the picture.
/// A label takes the first one that covers no better label, else the one that covers the smallest area of them.
/// A label that would cover more than a quarter of the picture is left out.
/// `reduction` is the number of picture pixels per raster pixel, in each direction.
std::vector<OverlayLabel> place_labels(int raster_width, int raster_height, int reduction,
                                       std::span<const Object> objects);

/// The text of a class, in the characters of the font: its name, or "class" and its number.
std::string class_text(int class_id, const std::string& name);

/// Tints the pixels of each class, outlines them where they meet others, and lists the classes that the picture has in
/// the upper left corner. Labels without a name, and that of a class "background", are not drawn.
/// The raster has the size of the label map. Throws std::invalid_argument if it does not.
void draw_classes(const PixelBuffer& raster, const LabelRows& labels, std::span<const std::string> names);

/// Draws masks (translucent, with an outline), boxes and labels into the raster. Higher scores are on top.
/// `info` is that of the raster. The objects are those of the full picture and are scaled to a reduced raster.
/// Throws std::invalid_argument for a mask that does not have the picture's size.
void draw_overlay(const PixelBuffer& raster, const PictureInfo& info, std::span<const Object> objects);

}  // namespace millrace
